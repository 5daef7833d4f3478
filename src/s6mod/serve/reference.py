"""The OpenAPI document as a page for people, which fetches nothing from anywhere."""

from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
:root { color-scheme: light dark; }
h2 { font: 1rem ui-monospace, monospace; margin: 1.5rem 0 0; }
p { margin: .2rem 0; }
td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
"""


def reference(openapi: dict[str, Any]) -> str:
    """The OpenAPI document as a page that fetches nothing."""
    parts = []
    for path, verbs in openapi["paths"].items():
        for verb, told in verbs.items():
            rows = [
                (each["name"], "in the address", each.get("description", "")) for each in told.get("parameters", ())
            ]
            for kind, form in told.get("requestBody", {}).get("content", {}).items():
                rows.append((kind, "body", ", ".join(form["schema"].get("properties", {})) or "the file itself"))
            table = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
            parts.append(f"<h2><b>{verb.upper()}</b> {escape(path)}</h2><p>{escape(told['description'])}</p>")
            parts.append(f"<table>{table}</table>")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>s6mod: reference</title><style>{STYLE}</style><h1>Reference</h1>"
        f'<p>{escape(openapi["info"]["description"])} Errors are <code>{{"error": "one sentence"}}</code>. '
        'For programs: <a href="openapi.json">openapi.json</a>.</p>' + "".join(parts) + "</html>"
    )
