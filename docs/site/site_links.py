#!/usr/bin/env python3
"""No link of a site dangles, and nothing of it is fetched from elsewhere.

    site_links.py FOLDER       check the HTML pages below FOLDER; one line a fault
    site_links.py --self-test  see that each kind of fault is noticed
"""
import pathlib
import re
import sys
import tempfile
import urllib.parse
from html.parser import HTMLParser

# Elements whose target a browser fetches by itself.
FETCHED = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[key] for key in ("id", "name") if attrs.get(key)}
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
        if attrs.get(FETCHED.get(tag)):
            self.fetched.append(attrs[FETCHED[tag]])


def check(folder):
    folder = pathlib.Path(folder).resolve()
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder)
        for link in page.links + page.fetched:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.fetched and parts.scheme != "data":
                    found.append(f"{name}: {link} is fetched from elsewhere")
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name}: {link} leads to no file")
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].ids:
                found.append(f"{name}: {link} leads to no place of its page")
    for path in folder.rglob("*.css"):
        found += [f"{path.relative_to(folder)}: {url} is fetched from elsewhere"
                  for url in re.findall(r"url\(['\"]?((?:https?:)?//[^)'\"]+)", path.read_text(encoding="utf-8"))]
    return found


def self_test():
    good = {"a.html": '<h1 id="top">A</h1><a href="b.html#x">b</a><a href="https://example.org">out</a>',
            "b.html": '<a href="#x" id="x">x</a><img src="c.svg">', "c.svg": "<svg/>", "d.css": "url(c.svg)"}
    bad = {"b.html": '<a href="#y">y</a>', "a.html": '<a href="e.html">e</a>', "f.html": '<a href="a.html#z">z</a>',
           "g.html": '<script src="https://example.org/x.js"></script>', "h.css": "url(//example.org/font)"}
    wrong = []
    for changed in [{}, *({name: text} for name, text in bad.items())]:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**good, **changed}.items():
                (pathlib.Path(folder) / name).write_text(text, encoding="utf-8")
            found = check(folder)
            if bool(found) != bool(changed):
                wrong.append(f"{changed or 'the good site'}: {found or 'nothing was noticed'}")
    return wrong


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = self_test() if sys.argv[1] == "--self-test" else check(sys.argv[1])
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
