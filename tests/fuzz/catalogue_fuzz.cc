// Compiled gettext catalogues: any numbers in them are safe, and messages are no larger than what the file may stand for.
#include "data/gettext_catalogue.h"
#include "tests/fuzz/fuzz_target.h"

PENSTOCK_FUZZ_TARGET(catalogue) {
  using namespace penstock;
  const absl::string_view file = FuzzBytes(data, size).rest();
  const absl::StatusOr<std::vector<GettextMessage>> messages = ReadGettextCatalogue(file);
  if (!messages.ok()) return 0;
  FuzzAccepted();
  // Each entry takes 16 bytes, and is two messages at most.
  PENSTOCK_CHECK(messages->size() <= file.size() / 8);
  return 0;
}
