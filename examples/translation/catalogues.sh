#!/usr/bin/env bash
# Makes a data set of English sentences and their German translations from the gettext catalogues of Debian packages:
#
#   examples/translation/catalogues.sh FOLDER [packages.txt]
#   penstock data prepare pairs FOLDER/catalogues -o FOLDER/pairs
#
# Packages are downloaded and unpacked, not installed; LANGUAGE=fr takes another language. FOLDER/catalogues then has one
# catalogue of each name, the first package's, and FOLDER/packages.tsv the versions that were used.
set -euo pipefail

folder=${1:?name a folder for the catalogues}
list=$(realpath "${2:-$(dirname "$0")/packages.txt}")
language=${LANGUAGE:-de}

mkdir -p "$folder/packages" "$folder/catalogues"
: > "$folder/packages.tsv"
mapfile -t packages < <(sed -E 's/#.*//; s/[[:space:]]//g; /^$/d' "$list")
for number in "${!packages[@]}"; do
  package=${packages[$number]}
  printf '\r\033[K%d of %d: %s' "$((number + 1))" "${#packages[@]}" "$package" >&2
  unpacked=$folder/packages/$package
  if [[ ! -d $unpacked ]]; then
    (cd "$folder/packages" && apt-get download --quiet "$package" > /dev/null)
    dpkg -x "$folder/packages/$package"_*.deb "$unpacked.part"
    mv "$unpacked.part" "$unpacked"
  fi
  dpkg-deb --show --showformat '${Package}\t${Version}\n' "$folder/packages/$package"_*.deb >> "$folder/packages.tsv"
  find "$unpacked" -path "*/$language/LC_MESSAGES/*.mo" -size +0 -print0 | sort -z |
    while IFS= read -r -d '' catalogue; do
      cp -n "$catalogue" "$folder/catalogues/"
    done
done
printf '\n%d catalogues are in %s\n' "$(find "$folder/catalogues" -name '*.mo' | wc -l)" "$folder/catalogues" >&2
