#include "services/cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <streambuf>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

// Standard output that remembers why it could not be written; a stream knows only that it could not.
class StandardOutput final : public std::streambuf {
 public:
  StandardOutput() { Empty(); }
  int error() const { return error_; }

 protected:
  int_type overflow(int_type next) override {
    if (!Drain()) return traits_type::eof();
    return traits_type::eq_int_type(next, traits_type::eof())
               ? traits_type::not_eof(next)
               : sputc(traits_type::to_char_type(next));
  }
  int sync() override { return Drain() ? 0 : -1; }

 private:
  void Empty() { setp(buffer_.data(), buffer_.data() + buffer_.size()); }
  bool Drain() {
    for (const char* from = pbase(); from < pptr();) {
      const ssize_t written = write(STDOUT_FILENO, from, static_cast<size_t>(pptr() - from));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        error_ = errno;
        return false;
      }
      from += written;
    }
    Empty();
    return true;
  }

  std::array<char, 1 << 14> buffer_;
  int error_ = 0;
};

}  // namespace

Console StandardConsole() {
  // Never destroyed, because standard error, which is tied to it, may be written until the very end.
  static std::ostream& out = *new std::ostream(new StandardOutput);
  std::cerr.tie(&out);  // what is said on the way keeps its place between results
  Console console{out, std::cerr};
  console.err_is_terminal = isatty(STDERR_FILENO) == 1;
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    console.columns = size.ws_col;
  }
  return console;
}

absl::Status FinishOutput(Console& console) {
  console.out.flush();
  if (console.out.good()) return absl::OkStatus();
  const auto* output = dynamic_cast<const StandardOutput*>(console.out.rdbuf());
  return absl::UnknownError(
      absl::StrCat("standard output could not be written",
                   output == nullptr ? "" : absl::StrCat(": ", std::strerror(output->error()))));
}

}  // namespace penstock
