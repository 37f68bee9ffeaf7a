// Poses of a video on a canvas, strips of time below it, and keys for all of it.
// Names come from data: they are set as text or drawn, never parsed as HTML.

const KEYS = [
  ["Space", "play or pause"], ["← →", "one frame"], ["Shift ← →", "one second"],
  ["B, Shift B", "next, previous bout"], ["E, Shift E", "next, previous error"],
  ["+ − 0", "zoom in, out, all"], ["W A S D", "move the picture"],
  ["T", "trails"], ["N", "names of parts"], ["K", "skeleton"]];
const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 8, 16];
const MARKS = [
  [[0, 1, 0, 1]], [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
  [[0, -1.2], [1, 1], [-1, 1]], [[0, -1.3], [1.1, 0], [0, 1.3], [-1.1, 0]]];
const PALE = 0.4, TRAIL = 2, TOLD_EVERY = 150, WORDS_EVERY = 200, SEEN_AFTER = 400, KEPT = 64e6;

function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attributes))
    if (k === "on") for (const [type, f] of Object.entries(v)) e.addEventListener(type, f);
    else if (v !== undefined && v !== false) e.setAttribute(k, v === true ? "" : v);
  e.append(...children);
  return e;
}

function button(name, pressed, key = "") {
  const words = key ? `${name} (${key})` : name;
  return h("button", { type: "button", title: words, on: { click: pressed },
    class: "jupyter-widgets jupyter-button widget-button" }, name);
}

function select(name, options, value, changed) {
  const menu = h("select", { on: { change: e => changed(+e.target.value) } },
    ...options.map(([words, v]) => h("option", { value: v, selected: v === value }, words)));
  return h("label", {}, `${name} `, menu);
}

function check(name, value, changed) {
  const box = h("input", { type: "checkbox", on: { change: e => changed(e.target.checked) } });
  box.checked = value;
  return [h("label", {}, box, ` ${name}`), box];
}

const clock = s => `${Math.floor(s / 60)}:${(s % 60).toFixed(2).padStart(5, "0")}`;
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

// The poses, piece after piece as the kernel sends them.
function makePoses(model, about, arrived) {
  const { frames, piece, mice, parts } = about;
  const wide = mice.length * parts.length * 2;
  const pieces = new Map(), asked = new Map();
  const last = Math.floor((frames - 1) / piece);
  const ahead = Math.max(2, Math.floor(KEPT / (4 * wide * piece)) - 2);
  let at = 0;
  const want = c => {
    const now = performance.now();
    if (pieces.has(c) || now - (asked.get(c) ?? -1e9) < 5000) return;
    asked.set(c, now);
    model.send({ want: c });
  };
  const next = () => { // all of a short video, what comes next of a long one
    for (let k = 0; k <= Math.min(ahead, last); k++) {
      const c = (at + k) % (last + 1);
      if (!pieces.has(c)) return want(c);
    }
  };
  const got = (message, buffers) => {
    if (message.piece === undefined) return;
    const b = buffers[0];
    pieces.set(message.piece, new Float32Array(
      b.buffer.slice(b.byteOffset, b.byteOffset + b.byteLength)));
    asked.delete(message.piece);
    for (const c of pieces.keys())
      if (pieces.size > ahead + 2 && c !== at) pieces.delete(c);
    arrived(message.piece);
    next();
  };
  return { got, of(frame) {
    at = Math.floor(frame / piece);
    const values = pieces.get(at), i = (frame - at * piece) * wide;
    if (!values) want(at);
    return values && values.subarray(i, i + wide);
  }, has: frame => pieces.get(Math.floor(frame / piece)), piece, wide };
}

function middle(pose, mouse, parts, which) { // of the parts that were seen
  let x = 0, y = 0, n = 0;
  for (const p of which) {
    const i = 2 * (mouse * parts + p);
    if (pose[i] === pose[i] && pose[i + 1] === pose[i + 1]) {
      x += pose[i]; y += pose[i + 1]; n++;
    }
  }
  return n ? [x / n, y / n] : null;
}

function mark(ctx, [x, y], i, size) {
  const shape = MARKS[i % MARKS.length];
  ctx.beginPath();
  if (shape.length === 1) ctx.arc(x, y, size, 0, 2 * Math.PI);
  else for (const [dx, dy] of shape) ctx.lineTo(x + dx * size, y + dy * size);
  ctx.closePath();
  ctx.fill();
  ctx.stroke();
}

// An mp4 under the poses from frame `first` to before `last`, its bytes from the kernel.
function makeVideo(model, count, { first, last, size }, ready) {
  if (!count) return null;
  const film = h("video", { muted: true, playsinline: true, preload: "auto" }), pieces = [];
  film.muted = true;
  for (const now of ["seeked", "loadeddata", "error"])
    film.addEventListener(now, () => ready(now === "loadeddata"));
  let url;
  const got = (message, buffers) => {
    if (url || message.video !== pieces.length) return;
    pieces.push(buffers[0]);
    if (pieces.length < count) return model.send({ video: pieces.length });
    film.src = url = URL.createObjectURL(new Blob(pieces, { type: "video/mp4" }));
    pieces.length = 0; // the browser holds them once, on disk where they are many
  };
  model.send({ video: 0 });
  return { film, first, last, size, got, end: () => url && URL.revokeObjectURL(url) };
}

function render({ model, el }) {
  const about = model.get("about"), { frames, fps, mice, parts, colors } = about;
  const marked = (i) => i + Math.floor(i / new Set(colors).size); // Colours come again
  const every = parts.map((_, p) => p);
  const on = { trails: false, names: false, skeleton: true };
  let frame = model.get("frame"), exact = frame, last = 0, playing = false, speed = 1;
  let zoom = 1, panX = 0, panY = 0, width = 0, height = 0, due = 0, sent = frame;
  let sentAt = 0, worded = 0, fresh = false, drawn = -1, later = 0, dragging = null, box = null, starts = [];
  let drawnStrips = {}, coming = null;

  const poses = makePoses(model, about, c => c === Math.floor(frame / about.piece) && paint());
  let lostFilm = "", video = makeVideo(
    model, about.video, { first: 0, last: frames }, () => paint());
  if (about.film) model.send({ film: frame });

  // What there is to see
  const canvas = h("canvas", { "aria-hidden": "true" });
  const ctx = canvas.getContext("2d");
  const stage = h("div", { class: "mabe-arena", tabindex: 0, role: "application",
    "aria-roledescription": "video of poses", "aria-label":
    "Animals; Space plays, arrows step, more below Keys" }, canvas);
  const picture = h("div", { class: "mabe-strips-picture" });
  const cursor = h("div", { class: "mabe-cursor", "aria-hidden": "true" });
  const strips = h("div", { class: "mabe-strips" }, picture, cursor);
  const legend = h("ul", { class: "mabe-legend", "aria-label": "Animals" },
    ...mice.map((name, i) => {
      const dot = h("canvas", { width: 28, height: 28, "aria-hidden": "true" });
      const c = dot.getContext("2d");
      c.fillStyle = c.strokeStyle = colors[i];
      mark(c, [14, 14], about.head.length ? marked(i) : 0, 9);
      return h("li", {}, dot, h("span", {}, name), h("em", {}));
    }));
  const words = h("div", { class: "mabe-words", role: "status" });

  // What can be pressed
  const play = button("Play", () => setPlaying(!playing), "Space");
  const number = h("input", { type: "number", min: 0, max: frames - 1, step: 1,
    on: { change: e => go(Math.round(+e.target.value)) } });
  const errorButtons = [button("Previous error", () => jump(model.get("errors"), -1), "Shift E"),
    button("Next error", () => jump(model.get("errors"), 1), "E")];
  const row = (...children) => h("div", { class: "mabe-row" }, ...children);
  const [trails, trailsBox] = check("Trails", on.trails, v => set("trails", v));
  const [names, namesBox] = check("Part names", on.names, v => set("names", v));
  const [bones, bonesBox] = check("Skeleton", on.skeleton, v => set("skeleton", v));
  const boxes = { trails: trailsBox, names: namesBox, skeleton: bonesBox };
  const keys = h("details", {}, h("summary", {}, "Keys"), h("dl", {}, ...[...KEYS,
    ...Object.entries(about.keys ?? {}).map(([k, v]) => [k.toUpperCase(), v])].flatMap(
    ([k, v]) => [h("dt", {}, k), h("dd", {}, v)])));
  const root = h("div", { class: "mabe-stage", on: { keydown: press } }, stage, legend, strips, words,
  row(play, button("Back one frame", () => step(-1), "←"),
    button("Forward one frame", () => step(1), "→"),
    button("Previous bout", () => jump(starts, -1), "Shift B"),
    button("Next bout", () => jump(starts, 1), "B"), ...errorButtons),
  row(h("label", {}, "Frame ", number),
    select("Speed", SPEEDS.map(s => [`${s} ×`, s]), 1, s => { speed = s; pace(); }),
    trails, ...(about.lines.length ? [bones] : []), names,
    button("Zoom in", () => zoomBy(1.5), "+"), button("Zoom out", () => zoomBy(1 / 1.5), "−"),
    button("Show all", showAll, "0")), keys);

  // Moving
  function go(to) {
    frame = clamp(Math.round(to) || 0, 0, frames - 1);
    exact = frame;
    last = performance.now();
    seek();
    paint();
  }
  const step = n => { setPlaying(false); go(frame + n); };
  function jump(all, way) {
    const to = way > 0 ? all.find(s => s > frame) : all.findLast(s => s < frame);
    if (to !== undefined) go(to);
  }
  function set(what, value) { boxes[what].checked = on[what] = value; paint(); }
  function tell(now) { // the kernel learns of the frame, not too often
    clearTimeout(later);
    const wait = sentAt + TOLD_EVERY - now;
    if (wait > 0) { later = setTimeout(() => tell(performance.now()), wait); return; }
    if (frame === sent) return;
    sent = frame;
    sentAt = now;
    model.set("frame", frame);
    model.save_changes();
  }
  function pace() { if (video) video.film.playbackRate = clamp(speed, 0.1, 16); }
  function seek() {
    if (!filmed() || !video.film.src) return;
    const at = (frame - video.first) / fps;
    if (!playing || Math.abs(video.film.currentTime - at) > 0.2)
      video.film.currentTime = at + 0.5 / fps;
  }
  const filmed = () => video && video.first <= frame && frame < video.last;
  function newFilm({ film, first, last, size }) { // another stretch; the one before stays until it is there
    if (video?.first === first && video.last === last) return;
    const next = makeVideo(model, film, { first, last, size }, loaded => {
      if (loaded && next !== video) {
        video?.film.pause();
        video?.end();
        [video, coming, lostFilm] = [next, null, ""];
        pace();
        if (playing) video.film.play().catch(() => {});
        seek();
      }
      paint();
    });
    coming = next;
  }
  function setPlaying(value) {
    if (value === playing) return;
    if (value && frame === frames - 1) go(0);
    playing = value;
    last = performance.now();
    play.textContent = play.title = playing ? "Pause" : "Play";
    words.setAttribute("aria-live", playing ? "off" : "polite");
    if (video?.film.src) playing ? video.film.play().catch(() => {}) : video.film.pause();
    model.set("playing", playing);
    model.save_changes();
    seek();
    paint();
  }
  function tick(now) { // a slow page loses frames and not time; a stall is not made up
    const passed = Math.min(now - last, 250) / 1000;
    last = now;
    exact = Math.min(exact + Math.max(passed, 0) * fps * speed, frames - 1);
    frame = Math.floor(exact + 1e-6);
    seek();
    if (frame === frames - 1) setPlaying(false);
  }

  // Drawing
  function paint() { // again, whether the frame is another one or not
    fresh = false;
    if (!due) due = requestAnimationFrame(draw);
  }
  function view() { // of pixels of the video: scale and origin on the canvas
    const [left, right, top, bottom] = about.extent;
    const k = Math.min(width / (right - left), height / (bottom - top)) * zoom;
    return [k, width / 2 + panX - k * (left + right) / 2,
      height / 2 + panY - k * (top + bottom) / 2];
  }
  function draw(now) {
    due = 0;
    if (!root.isConnected) return;
    if (playing) {
      due = requestAnimationFrame(draw);
      tick(now);
      if (fresh && frame === drawn && !video) return;
    }
    [fresh, drawn] = [true, frame];
    const pose = poses.of(frame), ratio = canvas.width / Math.max(width, 1);
    const ink = getComputedStyle(root).color, [k, x0, y0] = view();
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    if (filmed() && video.film.readyState > 1) { // may be smaller than what was tracked
      const [w, h] = about.picture ?? video.size ?? [video.film.videoWidth, video.film.videoHeight];
      ctx.drawImage(video.film, x0, y0, k * w, k * h);
    }
    ctx.lineJoin = ctx.lineCap = "round";
    ctx.font = "12px system-ui, sans-serif";
    scaleBar(ink, k);
    const pair = model.get("pair");
    if (pose) mice.forEach((_, i) => animal(pose, i, k, x0, y0, ink,
      !pair.length || pair.includes(i) ? 1 : PALE));
    place();
    if (now - worded > WORDS_EVERY || !playing) { worded = now; say(pose); }
    if (pose) root.dataset.frame = frame;
    tell(now);
  }
  function scaleBar(ink, k) {
    const unit = k * about.scale; // screen pixels in a cm, or in a pixel
    if (!(unit > 0)) return;
    const ten = 10 ** Math.floor(Math.log10(120 / unit));
    const long = [5, 2, 1].map(n => n * ten).find(n => n * unit <= 120) ?? ten;
    ctx.strokeStyle = ctx.fillStyle = ink;
    ctx.lineWidth = 2;
    ctx.beginPath();
    ctx.moveTo(10, height - 10);
    ctx.lineTo(10 + long * unit, height - 10);
    ctx.stroke();
    ctx.fillText(`${+long.toPrecision(2)} ${about.unit}`, 10, height - 16);
  }
  function animal(pose, i, k, x0, y0, ink, alpha) {
    const n = parts.length, at = p => {
      const j = 2 * (i * n + p), x = pose[j], y = pose[j + 1];
      return x === x && y === y ? [x0 + k * x, y0 + k * y] : null;
    };
    ctx.globalAlpha = alpha;
    ctx.strokeStyle = ctx.fillStyle = colors[i];
    if (on.trails) trail(i, k, x0, y0, alpha);
    const size = clamp(2 * Math.sqrt(zoom), 2, 7);
    if (on.skeleton) {
      ctx.lineWidth = size;
      ctx.beginPath();
      for (const [a, b] of about.lines) {
        const from = at(a), to = at(b);
        if (from && to) { ctx.moveTo(...from); ctx.lineTo(...to); }
      }
      ctx.stroke();
    }
    ctx.lineWidth = size * 2.5;
    ctx.beginPath();
    for (const p of every) {
      const seen = at(p);
      if (seen) { ctx.moveTo(...seen); ctx.lineTo(seen[0], seen[1] + 0.01); }
    }
    ctx.stroke();
    const head = about.head.length && middle(pose, i, n, about.head);
    ctx.lineWidth = 1.2;
    ctx.strokeStyle = ink;
    if (head) mark(ctx, [x0 + k * head[0], y0 + k * head[1]], marked(i), 3.2 * size);
    if (on.names) partNames(at, ink);
    ctx.globalAlpha = 1;
  }
  function partNames(at, ink) {
    ctx.fillStyle = ink;
    every.forEach(p => {
      const seen = at(p);
      if (seen) ctx.fillText(parts[p], seen[0] + 7, seen[1] - 5);
    });
  }
  function trail(i, k, x0, y0, alpha) { // of the middle of the body, older is paler
    const long = Math.round(TRAIL * fps), by = Math.max(1, Math.round(long / 40));
    ctx.lineWidth = 2;
    let before = null;
    for (let back = 0; back <= long && frame - back >= 0; back += by) {
      const values = poses.has(frame - back);
      if (!values) break;
      const j = ((frame - back) % poses.piece) * poses.wide;
      const now = middle(values.subarray(j, j + poses.wide), i, parts.length, every);
      if (now && before) {
        ctx.globalAlpha = alpha * 0.7 * (1 - back / (long + by));
        ctx.beginPath();
        ctx.moveTo(x0 + k * before[0], y0 + k * before[1]);
        ctx.lineTo(x0 + k * now[0], y0 + k * now[1]);
        ctx.stroke();
      }
      before = now;
    }
    ctx.globalAlpha = alpha;
  }
  function place() { // the line at this moment
    const s = drawnStrips, [start, stop] = s.span ?? [0, 0];
    const inside = box && start <= frame && frame < stop;
    cursor.style.display = inside ? "" : "none";
    if (!inside) return;
    const share = s.left + (s.right - s.left) * (frame - start) / (stop - start);
    cursor.style.transform = `translateX(${share * picture.clientWidth}px)`;
  }
  function say(pose) {
    if (document.activeElement !== number) number.value = frame;
    const gone = pose ? mice.filter((_, i) => !middle(pose, i, parts.length, every)) : [];
    const does = Object.entries(model.get("bouts")).map(([name, all]) => `${name}: ` + (
      [...new Set(all.filter(([, a, b]) => a <= frame && frame < b).map(b => b[0]))]
        .sort().join(", ") || "nothing"));
    const lost = gone.length ? [`not detected: ${gone.join(", ")}`] : [];
    const said = [`${clock(frame / fps)} of ${clock(frames / fps)}`, model.get("who"),
      does.join("; "), ...lost, lostFilm, ...(video?.film.error ?? coming?.film.error
        ? ["this browser cannot show the video"] : []),
      ...(pose ? [] : ["the poses are on their way"])];
    const text = said.filter(Boolean).join(" · ");
    if (words.textContent !== text) words.textContent = text;
    [...legend.children].forEach((item, i) => {
      const note = gone.includes(mice[i]) ? " not detected" : "";
      if (item.lastChild.textContent !== note) item.lastChild.textContent = note;
    });
  }

  // Size, zoom and mouse
  function fit() {
    const wide = Math.round(root.clientWidth);
    if (!wide) return;
    const [left, right, top, bottom] = about.extent;
    const high = wide * (bottom - top) / (right - left);
    width = wide;
    height = Math.round(clamp(high, 240, clamp(0.6 * window.innerHeight, 360, 760)));
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    cancelAnimationFrame(due);
    fresh = false;
    draw(performance.now());
    clearTimeout(fit.later);
    fit.later = setTimeout(() => {
      const rounded = Math.round(wide / 20) * 20;
      if (rounded !== model.get("width")) { model.set("width", rounded); model.save_changes(); }
    }, 300);
  }
  function zoomBy(factor, x = width / 2, y = height / 2) {
    const to = clamp(zoom * factor, 0.5, 40), by = to / zoom;
    panX = x - width / 2 - by * (x - width / 2 - panX);
    panY = y - height / 2 - by * (y - height / 2 - panY);
    zoom = to;
    paint();
  }
  function showAll() { zoom = 1; panX = panY = 0; paint(); }
  function pan(x, y) { panX += x; panY += y; paint(); }
  stage.addEventListener("wheel", e => { // the page scrolls until the video is chosen
    if (!e.ctrlKey && document.activeElement !== stage) return;
    e.preventDefault();
    const at = canvas.getBoundingClientRect();
    zoomBy(Math.exp(-e.deltaY * 0.002), e.clientX - at.left, e.clientY - at.top);
  }, { passive: false });
  stage.addEventListener("dblclick", showAll);
  const held = (element, moved) => {
    element.addEventListener("pointerdown", e => {
      if (e.button) return;
      dragging = element;
      element.setPointerCapture(e.pointerId);
      moved(e, true);
    });
    element.addEventListener("pointermove", e => dragging === element && moved(e, false));
    for (const end of ["pointerup", "pointercancel"])
      element.addEventListener(end, () => { dragging = null; });
  };
  held(stage, (e, first) => first ? stage.focus({ preventScroll: true }) :
    pan(e.movementX, e.movementY));
  held(strips, e => {
    const { span: [start, stop], left, right } = drawnStrips;
    const at = picture.getBoundingClientRect();
    const share = ((e.clientX - at.left) / at.width - left) / (right - left);
    setPlaying(false);
    go(clamp(Math.floor(start + share * (stop - start)), start, stop - 1));
  });

  function press(e) {
    if (e.target === number && e.key === "Enter") return go(+number.value);
    const own = e.target.closest("input, select, textarea");
    if (own && own.type !== "checkbox" || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === " " && e.target.closest("button, summary, input")) return;
    if ((about.keys ?? {})[e.key.toLowerCase()]) { // what the kernel answers
      e.preventDefault();
      e.stopPropagation();
      if (!e.repeat) model.send({ key: e.key.toLowerCase(), frame });
      return;
    }
    const way = e.shiftKey ? -1 : 1, side = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    const done = side ? () => step(side * (e.shiftKey ? Math.round(fps) : 1)) : {
      " ": () => setPlaying(!playing), b: () => jump(starts, way),
      e: () => jump(model.get("errors"), way), "+": () => zoomBy(1.5),
      "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: showAll,
      w: () => pan(0, 40), s: () => pan(0, -40), a: () => pan(40, 0), d: () => pan(-40, 0),
      t: () => set("trails", !on.trails), n: () => set("names", !on.names),
      k: () => set("skeleton", !on.skeleton) }[e.key.toLowerCase()];
    if (!done) return;
    e.preventDefault();
    e.stopPropagation();
    done();
  }

  // What the kernel says
  function newStrips(s) {
    drawnStrips = s;
    picture.innerHTML = s.svg ?? ""; // drawn by the kernel, all its words escaped
    box = picture.firstElementChild;
    strips.style.display = box ? "" : "none";
    paint();
  }
  function newPair() {
    starts = [...new Set(Object.values(model.get("bouts")).flat().map(b => b[1]))]
      .sort((a, b) => a - b);
    const some = model.get("errors").length > 0;
    for (const b of errorButtons) b.style.display = some ? "" : "none";
    paint();
  }
  const came = (message, buffers) => {
    poses.got(message, buffers);
    if (message.film) newFilm(message);
    (coming ?? video)?.got(message, buffers);
    if (message.lost) { lostFilm = message.lost; paint(); }
    if (message.strips) newStrips(message.strips);
    if (message.asked) setTimeout(() => { // who double-clicks has not seen it
      root.dataset.asked = message.asked;
      model.send({ asked: message.asked });
    }, SEEN_AFTER);
    if (message.go !== undefined) { sent = message.go; go(message.go); }
  };
  const listens = { "msg:custom": came, "change:bouts": newPair,
    "change:errors": newPair, "change:pair": paint, "change:who": paint,
    "change:playing": () => setPlaying(model.get("playing")),
    "change:frame": () => {
      const to = model.get("frame");
      if (!playing && !dragging && to !== sent) { sent = to; go(to); }
    } };
  for (const [name, f] of Object.entries(listens)) model.on(name, f);
  const beside = e => { // the focus is on a button of the panel that the kernel's keys are for
    if (about.keys && !root.contains(e.target)
        && el.closest(".mabe-panel")?.contains(e.target)) press(e);
  };
  document.addEventListener("keydown", beside);
  el.append(root);
  newStrips({});
  model.send({ strips: true });
  newPair();
  const sized = new ResizeObserver(fit);
  sized.observe(root);
  const themed = new MutationObserver(paint);
  themed.observe(document.body, { attributes: true });
  if (model.get("playing")) setPlaying(true);
  if (about.focus) requestAnimationFrame(() => stage.focus({ preventScroll: true }));
  return () => {
    for (const [name, f] of Object.entries(listens)) model.off(name, f);
    document.removeEventListener("keydown", beside);
    clearTimeout(later);
    sized.disconnect();
    themed.disconnect();
    video?.end();
  };
}

export default { render };
