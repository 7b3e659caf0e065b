#include "schedule/action.h"

#include <array>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

// By ActionKind.
constexpr std::array<absl::string_view, kActionKinds> kNames = {
    "RECV_F", "F",      "SEND_F",  "RECV_B",       "R",        "I",      "W",
    "SEND_B", "REDUCE", "NORM",    "UPDATE",       "FLUSH",    "SEND_R", "RECV_R",
    "SEND_W", "RECV_W", "OFFLOAD", "EVICT",        "PREFETCH", "SEND_Q", "RECV_Q",
    "SEND_P", "RECV_P", "DROP",    "BEGIN_REDUCE", "LOAD"};

std::optional<ActionKind> FindOp(absl::string_view name) {
  for (int kind = 0; kind < kActionKinds; ++kind) {
    if (kNames[kind] == name) return static_cast<ActionKind>(kind);
  }
  if (name == kOldUpdateName) return ActionKind::kUpdate;
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

absl::string_view ActionName(ActionKind kind) { return kNames[static_cast<int>(kind)]; }

std::string ToString(const Action& action) {
  std::string text;
  const bool of_later_pipeline = action.kind == ActionKind::kNorm && action.index != 0;
  if (HasIndex(action.kind) || of_later_pipeline) absl::StrAppend(&text, action.index);
  absl::StrAppend(&text, ActionName(action.kind));
  if (HasMicrobatch(action.kind)) absl::StrAppend(&text, action.microbatch);
  return text;
}

absl::StatusOr<Action> ParseAction(absl::string_view text) {
  const auto error = [text](absl::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\": expected ", expected));
  };
  absl::string_view rest = text;
  const absl::string_view index = TakeWhile(rest, IsDigit);
  const absl::string_view name = TakeWhile(rest, IsNameCharacter);
  const std::optional<ActionKind> kind = FindOp(name);
  if (!kind.has_value()) {
    return error(
        "<stage><operation><microbatch> such as 0F3, the operation being one of F, R, I, "
        "W, SEND_F, RECV_F, SEND_B, RECV_B, SEND_R, RECV_R, SEND_W, RECV_W, OFFLOAD, EVICT, "
        "PREFETCH, SEND_Q, RECV_Q, SEND_P, RECV_P, LOAD, DROP, BEGIN_REDUCE, REDUCE, NORM, "
        "UPDATE, FLUSH");
  }
  Action action{*kind};
  const bool may_have_index = *kind == ActionKind::kNorm && !index.empty();
  if (HasIndex(*kind) || may_have_index ? !absl::SimpleAtoi(index, &action.index)
                                        : !index.empty()) {
    return error(HasIndex(*kind) ? absl::StrCat(IsOfGroup(*kind) ? "the group" : "the stage",
                                                " in front of ", name)
                                 : absl::StrCat(name, " without a stage"));
  }
  if (HasMicrobatch(*kind) ? !IsDigit(rest.empty() ? '-' : rest.front()) ||
                                 !absl::SimpleAtoi(rest, &action.microbatch)
                           : !rest.empty()) {
    return error(HasMicrobatch(*kind) ? absl::StrCat("the microbatch after ", name)
                                      : absl::StrCat("nothing after ", name));
  }
  return action;
}

}  // namespace penstock
