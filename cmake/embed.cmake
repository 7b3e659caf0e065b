# Writes files as arrays of C++ (penstock_embed in penstock.cmake).
set(arrays "")
set(entries "")
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  string(MAKE_C_IDENTIFIER ${name} identifier)
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND arrays "constexpr char ${identifier}[] = {${bytes}};\n")
  string(APPEND entries "      {\"${name}\", {${identifier}, sizeof(${identifier})}},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"

namespace penstock {
namespace {

${arrays}
}  // namespace

const std::vector<EmbeddedFile>& ${NAME}() {
  static const auto* const files = new std::vector<EmbeddedFile>{
${entries}  };
  return *files;
}

}  // namespace penstock
")
