// Lines of instruction sets to tokens.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "data/instruction_sets.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr char kLineFormats[] =
    "expected {\"prompt\": TEXT, \"response\": TEXT} or {\"messages\": [{\"role\": ROLE, "
    "\"content\": TEXT}, ...]}";

struct Message {
  std::string role, content;
};

absl::Status NoExample(absl::string_view reason) {
  return absl::InvalidArgumentError(absl::StrCat(reason, "; ", kLineFormats));
}

// The text of a field. Errors: InvalidArgument naming it.
absl::StatusOr<std::string> FieldText(const Json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return NoExample(absl::StrCat("has no field ", field));
  if (found->is_string()) return found->get<std::string>();
  return NoExample(absl::StrCat(field, " is no text (", found->type_name(), ")"));
}

// Errors: InvalidArgument naming a field that is none of `known`: what it says would be lost.
absl::Status CheckFields(const Json& object, std::initializer_list<const char*> known) {
  for (const auto& [field, value] : object.items()) {
    const bool is_known = std::any_of(known.begin(), known.end(),
                                      [&name = field](const char* one) { return name == one; });
    if (!is_known)
      return NoExample(absl::StrCat("has the field ", field, ", which is not supported"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Message>> MessagesOf(const Json& messages) {
  if (!messages.is_array()) return NoExample("messages is no list");
  std::vector<Message> chat;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string name = absl::StrCat("messages[", i, "]");
    if (!messages[i].is_object()) return NoExample(absl::StrCat(name, " is no object"));
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckFields(messages[i], {"role", "content"}), name));
    Message message;
    for (const auto& [field, to] : {std::pair<const char*, std::string*>{"role", &message.role},
                                    {"content", &message.content}}) {
      absl::StatusOr<std::string> text = FieldText(messages[i], field);
      if (!text.ok()) return Annotate(text.status(), name);
      *to = *std::move(text);
    }
    chat.push_back(std::move(message));
  }
  return chat;
}

// What a line says; `is_plain`: it is a prompt and its response.
absl::StatusOr<std::vector<Message>> ChatOf(absl::string_view line, bool& is_plain) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return NoExample("is no JSON object");
  is_plain = !json.contains("messages");
  if (!is_plain) {
    PENSTOCK_RETURN_IF_ERROR(CheckFields(json, {"messages"}));
    return MessagesOf(json["messages"]);
  }
  PENSTOCK_RETURN_IF_ERROR(CheckFields(json, {"prompt", "response"}));
  PENSTOCK_ASSIGN_OR_RETURN(std::string prompt, FieldText(json, "prompt"));
  PENSTOCK_ASSIGN_OR_RETURN(std::string response, FieldText(json, "response"));
  return std::vector<Message>{{kUserRole, std::move(prompt)},
                              {kAssistantRole, std::move(response)}};
}

// Text that counts, or does not.
class LossRuns {
 public:
  void Add(absl::string_view text, bool counts) {
    if (text.empty()) return;
    if (runs_.empty() || runs_.back().counts != counts) runs_.push_back({"", counts});
    absl::StrAppend(&runs_.back().text, text);
  }

  absl::StatusOr<InstructionTokens> Encode(const Tokenizer& tokenizer) const {
    InstructionTokens tokens;
    for (const LossRun& run : runs_) {
      PENSTOCK_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(run.text));
      tokens.ids.insert(tokens.ids.end(), ids.begin(), ids.end());
      tokens.counts.insert(tokens.counts.end(), ids.size(), run.counts);
    }
    return tokens;
  }

 private:
  struct LossRun {
    std::string text;
    bool counts = false;
  };
  std::vector<LossRun> runs_;
};

absl::Status NoTemplate(const std::string& role, const ChatTemplate& roles) {
  return absl::InvalidArgumentError(absl::StrCat(
      "has a message of the role ", role, ", which no template is for; ",
      roles.empty() ? std::string("there is none")
                    : absl::StrCat("there are those of ",
                                   absl::StrJoin(roles, ", ",
                                                 [](std::string* text, const auto& entry) {
                                                   absl::StrAppend(text, entry.first);
                                                 })),
      ": name one for each role, such as --role '", role, "=...{}...'"));
}

}  // namespace

absl::Status AddRole(absl::string_view text, ChatTemplate& roles) {
  const size_t sign = text.find('=');
  const std::string written =
      sign == absl::string_view::npos
          ? ""
          : absl::StrReplaceAll(text.substr(sign + 1), {{"\\n", "\n"}, {"\\t", "\t"}});
  const size_t place = written.find("{}");
  const bool is_template = sign != absl::string_view::npos && sign > 0 &&
                           place != std::string::npos &&
                           written.find("{}", place + 2) == std::string::npos;
  if (!is_template) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text,
                     "\" is no template; expected ROLE=TEXT with {} once in the text, "
                     "where the content of a message stands"));
  }
  roles[std::string(text.substr(0, sign))] = {written.substr(0, place), written.substr(place + 2)};
  return absl::OkStatus();
}

absl::StatusOr<InstructionTokens> EncodeInstruction(absl::string_view line,
                                                    const ChatTemplate& roles,
                                                    const Tokenizer& tokenizer) {
  bool is_plain = false;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Message> chat, ChatOf(line, is_plain));
  LossRuns runs;
  bool has_response = false;
  for (const Message& message : chat) {
    const auto found = roles.find(message.role);
    const bool stands_alone = is_plain && roles.empty();
    if (found == roles.end() && !stands_alone) return NoTemplate(message.role, roles);
    const MessageTemplate wrapped = stands_alone ? MessageTemplate() : found->second;
    const bool counts = message.role == kAssistantRole;
    has_response = has_response || (counts && !message.content.empty());
    runs.Add(wrapped.before, false);
    runs.Add(message.content, counts);
    runs.Add(wrapped.behind, counts);
  }
  if (!has_response) {
    return absl::InvalidArgumentError(
        absl::StrCat("has no text of the role ", kAssistantRole, ", of which a model could learn"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(InstructionTokens tokens, runs.Encode(tokenizer));
  const std::optional<int32_t> end = tokenizer.SpecialId(SpecialToken::kEos);
  if (end.has_value() && chat.back().role == kAssistantRole) {
    tokens.ids.push_back(*end);
    tokens.counts.push_back(true);
  }
  return tokens;
}

}  // namespace penstock
