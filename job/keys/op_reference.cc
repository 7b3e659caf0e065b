#include "job/keys/op_reference.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "model/op.h"

namespace penstock {
namespace {

constexpr char kForm[] =
    R"(Any model: what it reads, then its ops in the order in which they are computed.

```yaml
model:
  layers:
    - input: {image: {f32: [784]}, label: {i32: []}}
    - linear: {outputs: 256}
    - relu
    - repeat: {count: 3, name: block, layers: [
        {residual: {layers: [{linear: {outputs: 256}}, relu]}}]}
    - linear: {outputs: 10, name: logits}
    - cross_entropy: {targets: label}
```

`penstock model show JOB.yaml` shows the layers that it makes, with shapes, parameters, FLOPs and the bytes at each cut.

An item of the list is an op or one of these:

| item | meaning |
|---|---|
| `input: {NAME: {TYPE: [SIZES], ids: N}, ...}` | What the model reads of a sample: its type (`f32`, `i32` or `u8`) and its sizes, `[]` for one number. `ids`, for `i32` alone: entries are 0 to N - 1; without it, what the ops that read it allow. Inputs come first. |
| `repeat: {count: N, name: NAME, layers: [...]}` | The list N times, one after the other. The ops are called `NAME.0.linear`, `NAME.1.linear` and so on. |
| `residual: {layers: [...], of: NAME}` | The list, and the sum of its input and its result. The sum can have a `name`. |
| `block: {name: NAME, layers: [...]}` | The list as one layer, the unit of cut, profile and checkpoint. |

An op may be a bare word, `relu`. Beside its settings each op has these keys:

| key | value | default | meaning |
|---|---|---|---|
| `name` | text | the op's name, with a number where it is taken: `linear`, `linear_2` | The name of the op, of its value and its parameters, within the repeat or block around it. |
| `of` | a name or a list of names | the value before; for the first op, the first input | What the op reads: inputs, ops, and repeats or blocks, which stand for their last value. Names of the same repetition go first. |
| `weights_of` | a name | its own | The op before it whose parameters this one uses as well. Two ops of one kind share those of the same name; `linear` may read the matrix in another `layout`. Others share of each shape the first, then the next. The first parameter must find one of its size; others that find none, such as a bias, are the op's own. Any ops can share; a shared weight is one parameter, whose gradient is the sum of its uses. |
| `targets` | a name | | Of a loss: what it compares with, the same as the second name of `of`. |

Outside blocks a layer begins at each op with parameters and has its name; ops without parameters belong to the layer
before them. A layer's name has no `/`, because checkpoints have a file named after it. The last op is the loss, and
there is only one.

)";

std::string Range(const AttributeSpec& spec) {
  return absl::StrFormat("from %.10g to %.10g", spec.min, spec.max);
}

std::string ValueOf(const AttributeSpec& spec) {
  switch (spec.kind) {
    case AttributeKind::kFlag:
      return "true or false";
    case AttributeKind::kInteger:
      return absl::StrCat("a whole number ", Range(spec));
    case AttributeKind::kNumber:
      return absl::StrCat("a number ", Range(spec));
    case AttributeKind::kWord:
      return absl::StrJoin(spec.words, " or ", [](std::string* out, absl::string_view word) {
        absl::StrAppend(out, "`", word, "`");
      });
    case AttributeKind::kIntegers:
    case AttributeKind::kNumbers:
      break;
  }
  const std::string list = spec.sizes > 0 ? absl::StrCat("a list of ", spec.sizes) : "a list";
  return absl::StrCat(
      spec.kind == AttributeKind::kIntegers ? "a whole number, or " : "a number, or ", list, ", ",
      Range(spec));
}

std::string OpSection(const Op& op) {
  std::string help(op.help);
  // A first letter alone is a variable.
  if (help.size() > 1 && absl::ascii_isalpha(help[1])) help[0] = absl::ascii_toupper(help[0]);
  std::string text = absl::StrCat("\n#### ", op.name, "\n\n", help, ".\n");
  if (op.attributes.empty()) return text;
  absl::StrAppend(&text, "\n| key | value | default | meaning |\n|---|---|---|---|\n");
  for (const AttributeSpec& spec : op.attributes) {
    absl::StrAppend(&text, "| `", spec.name, "` | ", ValueOf(spec), " | ",
                    spec.otherwise.empty()         ? "required"
                    : spec.otherwise == kNoDefault ? std::string(kNoDefault)
                                                   : absl::StrCat("`", spec.otherwise, "`"),
                    " | ", spec.help, " |\n");
  }
  return text;
}

}  // namespace

std::string LayersReference() {
  std::string text = absl::StrCat(kForm, "The ops:\n");
  for (const Op* op : AllOps()) text += OpSection(*op);
  return text;
}

}  // namespace penstock
