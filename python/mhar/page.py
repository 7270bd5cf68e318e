"""One HTML page that needs nothing but itself: text, tables, pictures as data, for screens from a phone's up, light and dark."""

import base64
from html import escape

from mhar.plots import Look

STYLE = """
:root { color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --back: #f3f4f6; --line: #d8dce0; --soft: #59636e;
  --alarm: #fff1c2; --strong: #0a5c36; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --paper: #161b22; --back: #0d1117; --line: #3d444d;
  --soft: #9aa4af; --alarm: #4a3a00; --strong: #5fd39a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 920px; margin: 0 auto; padding: 16px; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .4em 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 0 0 .5em; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 8px; padding: 16px; margin: 16px 0; }
figure { margin: 0; }
figure + figure { margin-top: 24px; }
img { width: 100%; height: auto; display: block; }
figcaption, .note { color: var(--soft); font-size: .9rem; }
.alarm { background: var(--alarm); border-radius: 8px; padding: 12px 16px; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 12px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child { text-align: left; white-space: normal; min-width: 9.5em; font-weight: 500; line-height: 1.3;
  position: sticky; left: 0; background: var(--paper); }
thead th { font-weight: 600; }
td.best { font-weight: 700; color: var(--strong); }
td.word { max-width: 22em; white-space: normal; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--back); border-radius: 6px; padding: 12px;
  font: 13px/1.45 ui-monospace, monospace; margin: .4em 0 1.2em; }
summary { cursor: pointer; }
@media (max-width: 600px) { main { padding: 8px; } section { padding: 12px; } th, td { padding: 6px; }
  table { font-size: .85rem; } th:first-child { min-width: 8em; padding-left: 0; }
  h1 { font-size: 1.3rem; } }
"""

# The policy makes a browser refuse whatever would still come from elsewhere.
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
"""


def document(title: str, parts: list[str]) -> str:
    """`parts` are HTML already; `title` is text."""
    return HEAD.format(title=escape(title), style=STYLE) + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"


def heading(title: str, paragraphs: list[str]) -> str:
    return f"<h1>{escape(title)}</h1>\n" + "\n".join(f"<p>{escape(text)}</p>" for text in paragraphs)


def alarm(text: str) -> str:
    return f'<p class="alarm" role="note">{escape(text)}</p>'


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def section(title: str, *parts: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def picture(images: dict[Look, bytes], description: str, caption: str = "") -> str:
    """One figure in its four looks; the browser takes the one for its width and colours."""
    def source(look: Look) -> str:
        return "data:image/png;base64," + base64.b64encode(images[look]).decode()

    narrow, dark = "(max-width: 600px)", "(prefers-color-scheme: dark)"
    return (f'<figure><picture><source media="{narrow} and {dark}" srcset="{source(Look(True, True))}">'
            f'<source media="{narrow}" srcset="{source(Look(True, False))}">'
            f'<source media="{dark}" srcset="{source(Look(False, True))}">'
            f'<img src="{source(Look())}" alt="{escape(description)}"></picture>'
            + (f"<figcaption>{escape(caption)}</figcaption>" if caption else "") + "</figure>")


def table(corner: str, columns: list[str], rows: list[tuple[str, list[str]]], best: dict[str, int] | None = None,
          words: bool = False) -> str:
    """Rows are named on the left. `best` marks one column of a row; `words`: cells are text and may be wrapped."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in [corner, *columns])
    lines = []
    for name, cells in rows:
        marked = (best or {}).get(name)
        styled = ["best" if place == marked else "word" if words else "" for place in range(len(cells))]
        body = "".join(f'<td class="{style}">{escape(cell)}</td>' if style else f"<td>{escape(cell)}</td>"
                       for style, cell in zip(styled, cells))
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{body}</tr>')
    return ('<div class="scroll" tabindex="0"><table><thead><tr>' + head + "</tr></thead><tbody>\n" + "\n".join(lines)
            + "\n</tbody></table></div>")


def details(summary: str, *parts: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>\n" + "\n".join(parts) + "\n</details>"


def quotation(lead: str, prompt: str, text: str) -> str:
    """A sample: what was given in bold, what was made after it, every character as it is."""
    return f"<p>{escape(lead)}</p>\n<pre><b>{escape(prompt)}</b>{escape(text)}</pre>"
