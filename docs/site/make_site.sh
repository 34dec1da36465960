#!/usr/bin/env bash
# make_site.sh DOXYGEN PYTHON ROOT VERSION LIBRARY DOXYFILE FOLDER
# Writes the site to FOLDER/html and the man pages to FOLDER/man. Warnings and links that dangle are errors.
# LIBRARY is the folder of the shared libraries, which the Python package opens when it is read; PYTHON has Sphinx.
set -euo pipefail
doxygen=$1 python=$2 root=$3 version=$4 library=$5 doxyfile=$6 folder=$7
site=$root/docs/site

rm -rf "$folder"/{xml,pages,doctrees,html,man}
"$doxygen" "$doxyfile" # writes FOLDER/xml
"$python" "$site/man_pages.py" "$folder/xml" "$version" "$folder/man"
"$python" "$site/site_pages.py" "$root" "$folder/xml" "$folder/pages"
MIMO_SITE_VERSION=$version MIMO_SITE_XML=$folder/xml MIMO_BRIDGE_LIBRARY=$library PYTHONDONTWRITEBYTECODE=1 \
    "$python" -m sphinx -q -W --keep-going -b html -c "$site" -d "$folder/doctrees" "$folder/pages" "$folder/html"
"$python" "$site/site_links.py" "$folder/html"
