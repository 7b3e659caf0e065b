#include "services/security/openssl.h"

#include <openssl/err.h>

#include "absl/strings/str_cat.h"

namespace penstock::openssl {

absl::Status Error(absl::StatusCode code, absl::string_view what) {
  const unsigned long reason = ERR_peek_error();
  const char* const text = reason == 0 ? nullptr : ERR_reason_error_string(reason);
  ERR_clear_error();
  return absl::Status(code, absl::StrCat(what, ": ", text == nullptr ? "refused" : text));
}

}  // namespace penstock::openssl
