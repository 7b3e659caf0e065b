#include "job/keys/key_reference.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/keys/key_options.h"
#include "job/keys/op_reference.h"
#include "penstock/v1/job.pb.h"

namespace penstock {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr char kHead[] = R"(# The job file

A job is a YAML file that says what to train and how. These are all its keys; `penstock manual job` prints this page.
An example with the keys that every job needs:

```yaml
name: shakespeare
model:
  gpt: {layers: 6, width: 192, heads: 6, context: 128}
data:
  text: {path: input.txt}
training:
  steps: 400
  batch: 32
  microbatches: 8
  optimizer: {adamw: {learning_rate: 1.0e-3}}
```

[examples/](../examples/README.md) has more to start from. `penstock train` and `penstock submit` set any key with
`--set KEY=VALUE`, such as `--set training.seed=2` ([cli.md](cli.md#job-files)). Mistakes in a file are refused
with line, column, key, value and what would do. `auto` for an optional number or truth value is as if the key were
not there. A list of one value may be written as the value.

<!-- Made of proto/penstock/v1/job.proto and model/ops/: change those, then run UPDATE_GOLDEN=1 ctest -R '^job_test$'. -->
)";

std::string Code(absl::string_view text) { return absl::StrCat("`", text, "`"); }

std::string FirstSentence(const std::string& text) {
  const size_t end = text.find(". ");
  return end == std::string::npos ? text : text.substr(0, end + 1);
}

// The link to the section of a mapping, by the rules of GitHub.
std::string LinkTo(const std::string& path) {
  std::string anchor = absl::AsciiStrToLower(path);
  anchor.erase(std::remove(anchor.begin(), anchor.end(), '.'), anchor.end());
  return absl::StrCat("(#", anchor, ")");
}

std::string ValueOf(const FieldDescriptor& field) {
  const v1::KeyOptions& options = OptionsOf(field);
  if (options.catalog() == v1::CATALOG_METHODS) return "a name of `penstock methods`, or `auto`";
  std::string value = ExpectedOf(field);
  std::vector<std::string> words = WordsOf(field);
  for (std::string& word : words) word = Code(word);
  if (!words.empty()) value = OneOf(words);
  if (!options.unit().empty()) absl::StrAppend(&value, ", in ", options.unit());
  return field.is_repeated() ? absl::StrCat("a list, each entry ", value) : value;
}

std::string DefaultOf(const FieldDescriptor& field) {
  const v1::KeyOptions& options = OptionsOf(field);
  if (!options.default_().empty()) return Code(options.default_());
  if (!options.otherwise().empty()) return options.otherwise();
  if (!options.required().empty()) return "required";
  if (field.message_type() != nullptr || field.has_presence() || field.is_repeated()) return "";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) return "none";
  // An absent number is 0.
  return options.has_above() || options.min() > 0 ? "required" : "`0`";
}

bool HasSection(const FieldDescriptor& field) {
  const Descriptor* message = field.message_type();
  return message != nullptr && message->field_count() > 0 &&
         message->field(0)->options().HasExtension(v1::key);
}

std::string MeaningOf(const FieldDescriptor& field) {
  const v1::KeyOptions& options = OptionsOf(field);
  if (HasSection(field)) return FirstSentence(options.help());
  std::string text = options.help();
  if (options.has_only_with()) {
    absl::StrAppend(&text, " Only with ",
                    Code(absl::StrCat(options.only_with().key(), ": ", options.only_with().is())),
                    ".");
  }
  return text;
}

std::string Choice(const Descriptor& message) {
  if (message.real_oneof_decl_count() == 0) return "";
  std::vector<std::string> kinds;
  kinds.reserve(message.oneof_decl(0)->field_count());
  for (int i = 0; i < message.oneof_decl(0)->field_count(); ++i) {
    const FieldDescriptor& kind = *message.oneof_decl(0)->field(i);
    if (!OptionsOf(kind).short_form().empty()) kinds.push_back(Code(OptionsOf(kind).short_form()));
    kinds.push_back(Code(kind.name()));
  }
  if (kinds.size() == 1) return "";
  return absl::StrCat("Only one of ", absl::StrJoin(kinds, ", "), " can be there.\n\n");
}

// The only short form that a key has is that of a model's layers.
void AppendShortFormRow(const std::string& key, std::string& page) {
  absl::StrAppend(&page, "| [", Code(key), "]", LinkTo(key),
                  " | a list |  | The ops of any model. |\n");
}

void AppendShortFormSection(const std::string& key, std::string& page) {
  absl::StrAppend(&page, "\n### ", key, "\n\n", LayersReference());
}

// `path`: of the mapping, empty for the whole file.
void AppendSection(const Descriptor& message, const std::string& path, std::string& page) {
  const std::string prefix = path.empty() ? "" : path + ".";
  absl::StrAppend(&page, Choice(message),
                  "| key | value | default | meaning |\n|---|---|---|---|\n");
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const bool has_section = HasSection(field);
    const std::string key = prefix + field.name();
    const std::string& short_form = OptionsOf(field).short_form();
    if (!short_form.empty()) AppendShortFormRow(prefix + short_form, page);
    absl::StrAppend(&page, "| ",
                    has_section ? absl::StrCat("[", Code(key), "]", LinkTo(key)) : Code(key), " | ",
                    ValueOf(field), " | ", DefaultOf(field), " | ", MeaningOf(field), " |\n");
  }
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string& short_form = OptionsOf(field).short_form();
    if (!short_form.empty()) AppendShortFormSection(prefix + short_form, page);
    if (!HasSection(field)) continue;
    const std::string key = prefix + field.name();
    absl::StrAppend(&page, "\n", path.empty() ? "## " : "### ", key, "\n\n",
                    OptionsOf(field).help(), "\n\n");
    AppendSection(*field.message_type(), key, page);
  }
}

}  // namespace

std::string JobReference() {
  std::string page = absl::StrCat(kHead, "\n");
  AppendSection(*v1::JobSpec::descriptor(), "", page);
  return page;
}

}  // namespace penstock
