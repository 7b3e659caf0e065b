#include "schedule/action.h"

#include <array>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

// By Op.
constexpr std::array<absl::string_view, kOps> kNames = {
    "RECV_F", "F",    "SEND_F", "RECV_B", "R",      "I",      "W",      "SEND_B",
    "REDUCE", "NORM", "UPDATE", "FLUSH",  "SEND_R", "RECV_R", "SEND_W", "RECV_W"};

std::optional<Op> FindOp(absl::string_view name) {
  for (int op = 0; op < kOps; ++op) {
    if (kNames[op] == name) return static_cast<Op>(op);
  }
  if (name == kOldUpdateName) return Op::kUpdate;
  return std::nullopt;
}

// Takes the characters at the front of `text` that satisfy `belongs`.
template <typename Predicate>
absl::string_view TakeWhile(absl::string_view& text, Predicate belongs) {
  size_t length = 0;
  while (length < text.size() && belongs(text[length])) ++length;
  const absl::string_view taken = text.substr(0, length);
  text.remove_prefix(length);
  return taken;
}

bool IsDigit(char c) { return absl::ascii_isdigit(c); }
bool IsNameCharacter(char c) { return absl::ascii_isupper(c) || c == '_'; }

}  // namespace

absl::string_view OpName(Op op) { return kNames[static_cast<int>(op)]; }

std::string ToString(const Action& action) {
  std::string text;
  if (HasIndex(action.op)) absl::StrAppend(&text, action.index);
  absl::StrAppend(&text, OpName(action.op));
  if (HasMicrobatch(action.op)) absl::StrAppend(&text, action.microbatch);
  return text;
}

absl::StatusOr<Action> ParseAction(absl::string_view text) {
  const auto error = [text](absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\": expected ", expected));
  };
  absl::string_view rest = text;
  const absl::string_view index = TakeWhile(rest, IsDigit);
  const absl::string_view name = TakeWhile(rest, IsNameCharacter);
  const std::optional<Op> op = FindOp(name);
  if (!op.has_value()) {
    return error(
        "<stage><operation><microbatch> such as 0F3, the operation being one of F, R, I, "
        "W, SEND_F, RECV_F, SEND_B, RECV_B, SEND_R, RECV_R, SEND_W, RECV_W, REDUCE, NORM, UPDATE, "
        "FLUSH");
  }
  Action action{*op};
  if (HasIndex(*op) ? !absl::SimpleAtoi(index, &action.index) : !index.empty()) {
    return error(HasIndex(*op) ? absl::StrCat(*op == Op::kReduce ? "the group" : "the stage",
                                              " in front of ", name)
                               : absl::StrCat(name, " without a stage"));
  }
  if (HasMicrobatch(*op) ? !IsDigit(rest.empty() ? '-' : rest.front()) ||
                               !absl::SimpleAtoi(rest, &action.microbatch)
                         : !rest.empty()) {
    return error(HasMicrobatch(*op) ? absl::StrCat("the microbatch after ", name)
                                    : absl::StrCat("nothing after ", name));
  }
  return action;
}

}  // namespace penstock
