"""A processor of nbdev, the last: links that it makes of names where they cannot be links.

nbdev links every name in backticks. In the code of a signature, and inside a link that the
author made, the bare Markdown would stand on the page.
"""
import re

MADE = re.compile(r"\[(`[^`\n]+`)\]\([^()\s]+\)")
NESTED = re.compile(r"\[\[(`[^`\n]+`)\]\([^()\s]+\)\](?=\()")


def without_links(lines):
    "Markdown whose code, between fences, has names and no links."
    inside = False
    for line in lines:
        if line.lstrip().startswith("```"): inside = not inside
        yield MADE.sub(r"\1", line) if inside else line


def mended_links(cell):
    "Nested links are the author's again, and signatures are code."
    if cell.cell_type == "markdown": cell.source = NESTED.sub(r"[\1]", cell.source)
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "text/markdown" in data:
            text = "".join(data["text/markdown"]).splitlines(keepends=True)
            data["text/markdown"] = [*without_links(text)]
