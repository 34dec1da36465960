#!/usr/bin/env python3
"""The site and the man pages are made without a warning, no link dangles, and every public name has its place.

    test_site.py ROOT FOLDER COMMAND...    the command (docs/site/make_site.sh) writes both to FOLDER

Exit status 77 (skipped) where there is no command: the build found no Doxygen or no Sphinx.
"""
import ast
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


def public_functions(root):
    text = "".join(path.read_text(encoding="utf-8") for path in (root / "include/mimo").glob("*.h"))
    return set(re.findall(r"^MIMO_API [^;]*?\b(mimo_\w+)\(", text, re.M))


def python_names(root):
    package = ast.parse((root / "python/mimo_bridge/__init__.py").read_text(encoding="utf-8"))
    return {name for node in package.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
            for name in ast.literal_eval(node.value)}


def check_site(root, html):
    """What should be on the site, and is not."""
    text = {path.relative_to(html).as_posix(): path.read_text(encoding="utf-8") for path in html.rglob("*.html")}
    interface = "".join(page for name, page in text.items() if name.startswith("c/"))
    package = "".join(page for name, page in text.items() if name.startswith("python/"))
    functions, names = public_functions(root), python_names(root)
    found = [f"{name} has no place in the C interface" for name in functions if f'id="c.{name}"' not in interface]
    found += [f"{name} has no place in the package" for name in names if f'id="mimo_bridge.{name}"' not in package]
    found += [f"{path.name} has no page" for path in (root / "docs").glob("*.md") if f"{path.stem}.html" not in text]
    for page, words in {"log": "any minor release may change it", "status": "ranks disagree",
                        "comm": "<strong>Deadlines</strong>", "bridge": "See <a "}.items():
        found += [f"the page of {page}.h does not say '{words}'"] if words not in text[f"c/{page}.html"] else []
    search = (html / "searchindex.js").read_text(encoding="utf-8")
    found += [f"the search does not know {word}" for word in ("zigzag", "mimo_bridge_forward") if word not in search]
    if len(functions) < 150 or len(names) < 40:
        found.append(f"only {len(functions)} functions and {len(names)} names of the package were looked for")
    return found


def check_manual(root, man):
    """A page for each function, which shows its own prototype and no other."""
    found = []
    for name in public_functions(root):
        path = man / f"man3/{name}.3"
        shown = re.findall(r"\b(mimo_\w+)\((?!\))", path.read_text(encoding="utf-8").split(".SH DESCRIPTION")[0]) \
            if path.is_file() else []
        if shown != [name]:
            found.append(f"the man page of {name} shows {shown}")
    header = (man / "man3/mimo_bridge.h.3").read_text(encoding="utf-8")
    if "mimo_bridge_forward" not in header or "Before any data moves" in header:
        found.append("the man page of bridge.h does not list its functions, or shows their comments")
    if shutil.which("groff"):
        pages = map(str, sorted((man / "man3").iterdir()))
        said = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", "-I", str(man), *pages],
                              capture_output=True, text=True, check=False)
        found += said.stderr.splitlines()[:10]
    return found


def check_faults(root, folder):
    """A link to no file, and one to no place of a page, are noticed."""
    sys.path.insert(0, str(root / "docs/site"))
    sys.dont_write_bytecode = True
    from site_links import self_test
    from site_pages import Site
    with tempfile.TemporaryDirectory() as out:
        site = Site(root, folder / "xml", out)
        site.convert("docs/routing.md", "[here](gone.md), [there](concepts.md#words), `mimo_bridge_forward`\n")
        found = [] if site.wrong == ["docs/routing.md: there is no file docs/gone.md"] else [f"links: {site.wrong}"]
    return found + self_test()


def main():
    root, folder, command = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    if not command:
        print("no Doxygen, or no Sphinx with MyST, Breathe and Furo: scripts/packages.sh docs")
        return 77
    made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if made.returncode or made.stdout.strip():
        print(f"{made.stdout}exit status {made.returncode}")
        return 1
    wrong = check_site(root, folder / "html") + check_manual(root, folder / "man") + check_faults(root, folder)
    print("\n".join(sorted(wrong)) or "every name has its place, and no link dangles")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
