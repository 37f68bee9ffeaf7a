// What ipywidgets cannot say: a panel is a group with a name, and keys pressed in it are its
// own. JupyterLab would take an "m" in a list for "make this cell Markdown", and Shift Enter
// in a text for "run this cell". Keys with Ctrl, Cmd or Alt stay those of the page.
function render({ model, el }) {
  let waiting = 0, looks = 0;
  const named = () => {
    const box = el.closest(".mabe-panel");
    if (box) {
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", model.get("title"));
    } else if (looks++ < 600) waiting = requestAnimationFrame(named);
  };
  const keep = e => { // JupyterLab asks the element that has the focus
    if (el.closest(".mabe-panel")?.contains(e.target)) e.target.toggleAttribute(
      "data-lm-suppress-shortcuts", !(e.ctrlKey || e.metaKey || e.altKey));
  };
  window.addEventListener("keydown", keep, true); // before JupyterLab
  named();
  return () => {
    cancelAnimationFrame(waiting);
    window.removeEventListener("keydown", keep, true);
  };
}

export default { render };
