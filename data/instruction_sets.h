// Instruction sets: prompts with their responses, and chats, to a directory of records (record_writer.h) of which a language
// model learns the responses alone.
//
// A line of a file is an example: {"prompt": TEXT, "response": TEXT}, which is a chat of `user` and `assistant`, or
// {"messages": [{"role": ROLE, "content": TEXT}, ...]}. Each message is written as its role's template says, with the text in the
// place of {}. What counts in the loss is what the assistant says, the template's end behind it, and the token that ends a text
// (if the tokenizer has one) behind a chat that the assistant ends. Text that counts and text that does not are encoded apart.
//
// A record has `tokens`, `targets` (the tokens after them, kIgnoredTarget where one does not count) and `positions` (in the
// example), i32 [context] each. Examples are packed: each goes to the first of the rows in hand that has room.
//
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/files.h"
#include "tokenizer/tokenizer.h"

namespace penstock {

inline constexpr int32_t kIgnoredTarget = -100;  // as PyTorch's and transformers' ignore_index

inline constexpr char kUserRole[] = "user";
inline constexpr char kAssistantRole[] = "assistant";

// What is before and behind the text of a message, by its role.
struct MessageTemplate {
  std::string before, behind;
};
using ChatTemplate = std::map<std::string, MessageTemplate>;

// "user=<|user|>{}<|end|>", with \n and \t as in C. Errors: InvalidArgument (no role, no {} or two).
absl::Status AddRole(absl::string_view text, ChatTemplate& roles);

// An example as tokens, and which of them count as targets.
struct InstructionTokens {
  std::vector<int32_t> ids;
  std::vector<bool> counts;
};

// `line`: as above. `roles`: those without a template are refused, but that user and assistant of a prompt and its response
// stand for themselves if there is none at all.
// Errors: InvalidArgument (other fields, a role without a template, nothing that counts), those of the tokenizer.
absl::StatusOr<InstructionTokens> EncodeInstruction(absl::string_view line,
                                                    const ChatTemplate& roles,
                                                    const Tokenizer& tokenizer);

struct InstructionSetOptions {
  std::vector<std::string> from;  // files of lines
  std::string to;                 // the directory
  std::string tokenizer;          // its path
  ChatTemplate roles;
  int64_t context = 0;    // of the model
  bool is_packed = true;  // else a row has one example
  int64_t shard_bytes_max = int64_t{256} << 20;
  // Called now and then; its error ends the work. May be empty.
  std::function<absl::Status(int64_t done_bytes, int64_t all_bytes, const std::string& what)>
      progress;
};

struct PreparedInstructions {
  int64_t examples = 0;  // that are in rows
  int64_t too_long = 0;  // left out: longer than the context
  int64_t rows = 0;
  int64_t tokens = 0;     // of the examples
  int64_t targets = 0;    // that count
  std::string tokenizer;  // the copy's path
};

// The tokenizer's file goes along. Errors: NotFound and PermissionDenied (a file), InvalidArgument (a line, with its number; no
// example that fits), AlreadyExists (the directory has records), those of the tokenizer, of `files` and of `progress`.
absl::StatusOr<PreparedInstructions> PrepareInstructions(Files& files,
                                                         const InstructionSetOptions& options);

}  // namespace penstock
