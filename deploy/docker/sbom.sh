#!/bin/sh
# Prints an image's bill of materials: every Debian package in it and Penstock itself, in SPDX 2.3. Fails if a program
# of Penstock lacks a library.
#   sbom.sh NAME VERSION CREATED
set -eu
name=$1 version=$2 created=$3
for program in /usr/local/bin/penstock*; do
  [ -e "$program" ] || continue
  if ldd "$program" | grep "not found" >&2; then
    echo "sbom.sh: $program does not start here; see deploy/docker/runtime_packages.sh" >&2
    exit 1
  fi
done
. /etc/os-release
digest=$(dpkg-query --show --showformat='${Package} ${Version} ${Architecture}\n' | sha256sum | cut -c 1-32)
dpkg-query --show --showformat='${Package}\t${Version}\t${Architecture}\t${Maintainer}\n' |
  awk -F '\t' -v name="$name" -v version="$version" -v created="$created" -v digest="$digest" \
    -v distribution="$ID-${VERSION_ID:-unknown}" '
    function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
    # Identifiers have letters, digits, dots and hyphens; purls escape the plus.
    function identifier(text) { gsub(/[^A-Za-z0-9.-]/, "-", text); return "SPDXRef-" text }
    function escaped(text) { gsub(/\+/, "%2B", text); gsub(/:/, "%3A", text); gsub(/~/, "%7E", text); return text }
    function package(id, called, number, supplier, purl) {
      printf "    {\"SPDXID\": %s, \"name\": %s, \"versionInfo\": %s, \"supplier\": %s,\n", quoted(id), quoted(called),
             quoted(number), quoted(supplier)
      printf "     \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"copyrightText\": \"NOASSERTION\",\n"
      printf "     \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\",\n"
      printf "                       \"referenceLocator\": %s}]}", quoted(purl)
    }
    BEGIN {
      own = identifier("Package-" name)
      print "{"
      print "  \"spdxVersion\": \"SPDX-2.3\", \"dataLicense\": \"CC0-1.0\", \"SPDXID\": \"SPDXRef-DOCUMENT\","
      printf "  \"name\": %s,\n", quoted(name "-" version)
      printf "  \"documentNamespace\": %s,\n", quoted("https://spdx.org/spdxdocs/" name "-" version "-" digest)
      printf "  \"creationInfo\": {\"created\": %s, \"creators\": [\"Tool: penstock-sbom\"]},\n", quoted(created)
      print "  \"packages\": ["
      package(own, name, version, "Organization: Penstock", "pkg:generic/" name "@" version)
    }
    {
      id = identifier("Package-deb-" $1 "-" $3)
      print ","
      package(id, $1, $2, "Person: " $4, "pkg:deb/debian/" escaped($1) "@" escaped($2) "?arch=" $3 "&distro=" distribution)
      ids[++count] = id
    }
    END {
      print "\n  ],\n  \"relationships\": ["
      printf "    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": %s}",
             quoted(own)
      for (i = 1; i <= count; i++)
        printf ",\n    {\"spdxElementId\": %s, \"relationshipType\": \"DEPENDS_ON\", \"relatedSpdxElement\": %s}",
               quoted(own), quoted(ids[i])
      print "\n  ]\n}"
    }'
