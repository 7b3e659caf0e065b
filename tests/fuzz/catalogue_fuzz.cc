// Compiled gettext catalogues: any numbers in them are safe, and messages are no larger than what the file may stand for.
#include "data/gettext_catalogue.h"
#include "tests/fuzz/fuzz_target.h"

PENSTOCK_FUZZ_TARGET(catalogue) {
  using namespace penstock;
  const absl::string_view file = FuzzBytes(data, size).rest();
  const absl::StatusOr<std::vector<GettextMessage>> messages = ReadGettextCatalogue(file);
  if (!messages.ok()) return 0;
  FuzzAccepted();
  // Each entry is two messages at most, and takes eight bytes where both tables are one.
  PENSTOCK_CHECK(messages->size() <= file.size() / 4);
  return 0;
}
