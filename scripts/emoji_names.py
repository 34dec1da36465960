#!/usr/bin/env python3
"""Print the names of emoji in one language, for the captioner's --names.

    scripts/emoji_names.py de >names.txt

On each line: the code points of an emoji in hexadecimal, a tab, its name. The names are those of
Unicode's CLDR (the annotations of type "tts"), as the Debian package unicode-cldr-core has them.
--cldr names another folder than /usr/share/unicode/cldr/common.
"""
import argparse
import os
import sys
import xml.etree.ElementTree

# The second file has the sequences: skin tones, flags, families.
FOLDERS = ("annotations", "annotationsDerived")


def names_in(path):
    for annotation in xml.etree.ElementTree.parse(path).iter("annotation"):
        if annotation.get("type") == "tts" and annotation.get("cp") and annotation.text:
            yield annotation.get("cp").replace("\ufe0f", ""), " ".join(annotation.text.split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("language", help="a name of CLDR: de, fr, pt_PT")
    parser.add_argument("--cldr", default="/usr/share/unicode/cldr/common", metavar="DIR")
    options = parser.parse_args()
    names = {}
    for folder in FOLDERS:
        path = os.path.join(options.cldr, folder, options.language + ".xml")
        try:
            names.update(names_in(path))
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            sys.exit(f"emoji_names.py: cannot read {path}: {error}"
                     " (Debian package unicode-cldr-core)")
    if not names:
        sys.exit(f"emoji_names.py: {options.cldr} has no names in {options.language}")
    for emoji, name in sorted(names.items()):
        sys.stdout.write(" ".join(f"{ord(code):04X}" for code in emoji) + "\t" + name + "\n")


main()
