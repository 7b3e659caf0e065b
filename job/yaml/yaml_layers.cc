#include "job/yaml/yaml_layers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/keys/suggest.h"
#include "job/yaml/layer_list.h"
#include "model/op.h"

namespace penstock {
namespace {

using Names = std::vector<std::string>;

constexpr absl::string_view kKindNames[] = {"true or false",
                                            "a whole number",
                                            "a number",
                                            "a word",
                                            "a whole number or a list of them",
                                            "a number or a list of them"};

std::optional<AttributeValue> ValueOf(const YAML::Node& node, AttributeKind kind);

template <typename T>
std::optional<AttributeValue> ListOf(const YAML::Node& node, AttributeKind kind_of_each) {
  std::vector<T> values;
  for (const YAML::Node& element : node) {
    const std::optional<AttributeValue> value = ValueOf(element, kind_of_each);
    if (!value.has_value()) return std::nullopt;
    values.push_back(std::get<T>(*value));
  }
  return values;
}

// The value of an attribute, if the node has one of its kind. One number may stand for a list.
std::optional<AttributeValue> ValueOf(const YAML::Node& node, AttributeKind kind) {
  if (node.IsSequence() && kind == AttributeKind::kIntegers) {
    return ListOf<int64_t>(node, AttributeKind::kInteger);
  }
  if (node.IsSequence() && kind == AttributeKind::kNumbers) {
    return ListOf<double>(node, AttributeKind::kNumber);
  }
  if (!node.IsScalar()) return std::nullopt;
  const std::string& text = node.Scalar();
  if (kind == AttributeKind::kWord) return text;
  if (IsQuoted(node)) return std::nullopt;
  int64_t integer = 0;
  double number = 0.0;
  const std::string lower = absl::AsciiStrToLower(text);
  switch (kind) {
    case AttributeKind::kFlag:
      if (lower == "true" || lower == "false") return lower == "true";
      return std::nullopt;
    case AttributeKind::kInteger:
    case AttributeKind::kIntegers:
      if (absl::SimpleAtoi(text, &integer)) return integer;
      return std::nullopt;
    default:
      if (text.find_first_not_of("+-.0123456789eE") != std::string::npos) return std::nullopt;
      if (absl::SimpleAtod(text, &number)) return number;
      return std::nullopt;
  }
}

// `message` without the name that it starts with, if `path` ends with the same.
absl::string_view WithoutRepeatedName(absl::string_view path, absl::string_view message) {
  const absl::string_view name = message.substr(0, message.find(": "));
  if (!absl::EndsWith(path, absl::StrCat(".", name))) return message;
  message.remove_prefix(std::min(message.size(), name.size() + 2));
  return message;
}

class LayersReader {
 public:
  explicit LayersReader(const std::string& file_name) : file_name_(file_name) {}

  absl::Status ReadList(const YAML::Node& items, const std::string& path);
  // After the last list. `key`: of all of them.
  absl::Status Finish(const YAML::Node& items, const std::string& path, v1::ModelGraph& graph);

 private:
  absl::Status Error(const YAML::Node& node, const std::string& path,
                     absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(PlaceOf(file_name_, node.Mark()), ": ", path, ": ", what));
  }
  absl::Status WrongType(const YAML::Node& node, const std::string& path,
                         absl::string_view expected) const {
    return Error(node, path, absl::StrCat("expected ", expected, ", got ", DescribeNode(node)));
  }
  // An absent value has the place of whatever comes next, so its item's is said.
  absl::Status WrongValue(const YAML::Node& item, const YAML::Node& node, const std::string& path,
                          absl::string_view expected) const {
    return Error(node.IsNull() ? item : node, path,
                 absl::StrCat("expected ", expected, ", got ", DescribeNode(node)));
  }
  absl::Status UnknownName(const YAML::Node& node, const std::string& path, absl::string_view what,
                           absl::string_view name, const Names& known) const;

  // Calls `read` with the name and the value of each key of `body`, which may be nothing.
  absl::Status ReadKeys(
      const YAML::Node& body, const std::string& path, const Names& known,
      const std::function<absl::Status(const std::string&, const YAML::Node&)>& read) const;
  absl::StatusOr<std::string> ReadName(const YAML::Node& item, const YAML::Node& node,
                                       const std::string& path) const;
  absl::StatusOr<int64_t> ReadInteger(const YAML::Node& item, const YAML::Node& node,
                                      const std::string& path, int64_t max) const;
  // A name of a value that is there, in full.
  absl::StatusOr<std::string> ReadReference(const YAML::Node& item, const YAML::Node& node,
                                            const std::string& path) const;
  absl::StatusOr<Names> ReadReferences(const YAML::Node& item, const YAML::Node& node,
                                       const std::string& path) const;

  absl::Status ReadItem(const YAML::Node& item, const std::string& path);
  absl::Status ReadInputs(const YAML::Node& item, const YAML::Node& body, const std::string& path);
  absl::Status ReadInput(const YAML::Node& item, const std::string& name, const YAML::Node& node,
                         const std::string& path);
  absl::Status ReadRepeat(const YAML::Node& item, const YAML::Node& body, const std::string& path);
  absl::Status ReadResidual(const YAML::Node& item, const YAML::Node& body,
                            const std::string& path);
  absl::Status ReadBlock(const YAML::Node& item, const YAML::Node& body, const std::string& path);
  absl::Status ReadOp(const Op& op, const YAML::Node& item, const YAML::Node& body,
                      const std::string& path);
  // The keys that repeat, residual and block have.
  struct Group {
    std::string name;
    std::string of;
    int64_t count = 0;
    YAML::Node layers;
  };
  absl::StatusOr<Group> ReadGroup(const YAML::Node& item, const YAML::Node& body,
                                  const std::string& path, const Names& known) const;
  absl::Status AddOp(NodeSpec op, const YAML::Node& item, const std::string& path);

  const std::string& file_name_;
  LayerList list_;
  std::map<std::string, std::string> places_;  // by name of a value: "FILE:LINE:COLUMN: path"
  int depth_ = 0;                              // of lists
};

absl::Status LayersReader::UnknownName(const YAML::Node& node, const std::string& path,
                                       absl::string_view what, absl::string_view name,
                                       const Names& known) const {
  const std::string nearest = NearestName(name, known);
  return Error(node, path,
               nearest.empty()
                   ? absl::StrCat("unknown ", what, "; known are ", absl::StrJoin(known, ", "))
                   : absl::StrCat("unknown ", what, "; did you mean ", nearest, "?"));
}

absl::Status LayersReader::ReadKeys(
    const YAML::Node& body, const std::string& path, const Names& known,
    const std::function<absl::Status(const std::string&, const YAML::Node&)>& read) const {
  if (body.IsNull() || !body.IsDefined()) return absl::OkStatus();
  if (!body.IsMap()) return WrongType(body, path, "keys and values");
  Names met;
  for (const auto& entry : body) {
    if (!entry.first.IsScalar()) return WrongType(entry.first, path, "a key");
    const std::string& key = entry.first.Scalar();
    const std::string key_path = absl::StrCat(path, ".", key);
    if (std::find(met.begin(), met.end(), key) != met.end()) {
      return Error(entry.first, key_path, "given twice");
    }
    if (!known.empty() && std::find(known.begin(), known.end(), key) == known.end()) {
      return UnknownName(entry.first, key_path, "key", key, known);
    }
    met.push_back(key);
    PENSTOCK_RETURN_IF_ERROR(read(key, entry.second));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> LayersReader::ReadName(const YAML::Node& item, const YAML::Node& node,
                                                   const std::string& path) const {
  if (!node.IsScalar() || node.Scalar().empty()) return WrongValue(item, node, path, "a name");
  return node.Scalar();
}

absl::StatusOr<int64_t> LayersReader::ReadInteger(const YAML::Node& item, const YAML::Node& node,
                                                  const std::string& path, int64_t max) const {
  const std::optional<AttributeValue> value = ValueOf(node, AttributeKind::kInteger);
  const int64_t integer = value.has_value() ? std::get<int64_t>(*value) : 0;
  if (integer >= 1 && integer <= max) return integer;
  return WrongValue(item, node, path, absl::StrCat("a whole number from 1 to ", max));
}

absl::StatusOr<std::string> LayersReader::ReadReference(const YAML::Node& item,
                                                        const YAML::Node& node,
                                                        const std::string& path) const {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string name, ReadName(item, node, path));
  absl::StatusOr<std::string> value = list_.Find(name);
  if (!value.ok()) return Error(node, path, value.status().message());
  return value;
}

absl::StatusOr<Names> LayersReader::ReadReferences(const YAML::Node& item, const YAML::Node& node,
                                                   const std::string& path) const {
  Names names;
  if (!node.IsSequence()) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string name, ReadReference(item, node, path));
    names.push_back(std::move(name));
    return names;
  }
  for (const YAML::Node& element : node) {
    PENSTOCK_ASSIGN_OR_RETURN(std::string name, ReadReference(item, element, path));
    names.push_back(std::move(name));
  }
  if (names.empty()) return Error(node, path, "is empty; expected a name or a list of names");
  return names;
}

absl::Status LayersReader::ReadList(const YAML::Node& items, const std::string& path) {
  ++depth_;
  for (size_t i = 0; i < items.size(); ++i) {
    PENSTOCK_RETURN_IF_ERROR(ReadItem(items[i], absl::StrCat(path, "[", i, "]")));
  }
  --depth_;
  return absl::OkStatus();
}

absl::Status LayersReader::ReadItem(const YAML::Node& item, const std::string& path) {
  const bool is_word = item.IsScalar();
  if (!is_word && (!item.IsMap() || item.size() != 1 || !item.begin()->first.IsScalar())) {
    const std::string got =
        item.IsMap() && item.size() > 1
            ? absl::StrCat(item.size(),
                           " keys beside one another; settings stand inside the op's braces")
        : item.IsMap() ? "an empty item"
                       : DescribeNode(item);
    return Error(
        item, path,
        absl::StrCat("expected one op with its settings, as in `relu` or `linear: {outputs: "
                     "10}`, got ",
                     got));
  }
  const std::string name = is_word ? item.Scalar() : item.begin()->first.Scalar();
  const YAML::Node body = is_word ? YAML::Node() : item.begin()->second;
  const std::string item_path = absl::StrCat(path, ".", name);
  if (name == "input") return ReadInputs(item, body, item_path);
  if (name == "repeat") return ReadRepeat(item, body, item_path);
  if (name == "residual") return ReadResidual(item, body, item_path);
  if (name == "block") return ReadBlock(item, body, item_path);
  Names known = {"input", "repeat", "residual", "block"};
  for (const Op* op : AllOps()) {
    if (op->name == name) return ReadOp(*op, item, body, item_path);
    known.emplace_back(op->name);
  }
  return UnknownName(item, item_path, "op", name, known);
}

absl::Status LayersReader::ReadInputs(const YAML::Node& item, const YAML::Node& body,
                                      const std::string& path) {
  if (depth_ > 1) return Error(item, path, "stands inside another item; move it to the start");
  if (!body.IsMap())
    return WrongValue(item, body, path, "inputs, as in {image: {u8: [32, 32, 3]}}");
  return ReadKeys(body, path, {}, [&](const std::string& name, const YAML::Node& node) {
    return ReadInput(item, name, node, absl::StrCat(path, ".", name));
  });
}

absl::Status LayersReader::ReadInput(const YAML::Node& item, const std::string& name,
                                     const YAML::Node& node, const std::string& path) {
  Port port = {.name = name};
  std::string dtype;
  PENSTOCK_RETURN_IF_ERROR(ReadKeys(
      node, path, {"f32", "i32", "u8", "ids"},
      [&](const std::string& key, const YAML::Node& value) -> absl::Status {
        const std::string key_path = absl::StrCat(path, ".", key);
        if (key == "ids") {
          PENSTOCK_ASSIGN_OR_RETURN(port.ids, ReadInteger(item, value, key_path, INT32_MAX));
          return absl::OkStatus();
        }
        if (!dtype.empty()) {
          return Error(value, path,
                       absl::StrCat(dtype, " and ", key, " exclude each other; keep one"));
        }
        dtype = key;
        const std::optional<AttributeValue> dims = ValueOf(value, AttributeKind::kIntegers);
        if (!dims.has_value()) {
          return WrongValue(item, value, key_path, "the sizes of one sample, as in [32, 32, 3]");
        }
        const int64_t* single = std::get_if<int64_t>(&*dims);
        port.type = {*DTypeNamed(key), single != nullptr ? std::vector<int64_t>{*single}
                                                         : std::get<std::vector<int64_t>>(*dims)};
        return absl::OkStatus();
      }));
  if (dtype.empty()) {
    return Error(item, path, "has no type; expected f32, i32 or u8 with sizes, as in {i32: [128]}");
  }
  places_[name] = absl::StrCat(PlaceOf(file_name_, item.Mark()), ": ", path);
  const absl::Status added = list_.AddInput(std::move(port));
  return added.ok() ? added : Error(item, path, WithoutRepeatedName(path, added.message()));
}

absl::StatusOr<LayersReader::Group> LayersReader::ReadGroup(const YAML::Node& item,
                                                            const YAML::Node& body,
                                                            const std::string& path,
                                                            const Names& known) const {
  Group group;
  PENSTOCK_RETURN_IF_ERROR(ReadKeys(
      body, path, known, [&](const std::string& key, const YAML::Node& value) -> absl::Status {
        const std::string key_path = absl::StrCat(path, ".", key);
        if (key == "name") {
          PENSTOCK_ASSIGN_OR_RETURN(group.name, ReadName(item, value, key_path));
        } else if (key == "of") {
          PENSTOCK_ASSIGN_OR_RETURN(group.of, ReadReference(item, value, key_path));
        } else if (key == "count") {
          PENSTOCK_ASSIGN_OR_RETURN(group.count,
                                    ReadInteger(item, value, key_path, kModelNodesMax));
        } else {
          if (!value.IsSequence()) return WrongValue(item, value, key_path, "a list of ops");
          group.layers.reset(value);
        }
        return absl::OkStatus();
      }));
  if (!group.layers.IsSequence() || group.layers.size() == 0) {
    return Error(item, path, "has no ops; expected `layers: [...]` in it");
  }
  return group;
}

absl::Status LayersReader::ReadRepeat(const YAML::Node& item, const YAML::Node& body,
                                      const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const Group group,
                            ReadGroup(item, body, path, {"count", "name", "layers"}));
  if (group.count == 0) {
    return Error(item, path + ".count", "is missing; expected the number of repetitions");
  }
  const auto enter = [&](absl::string_view name) {
    const absl::Status entered = list_.EnterScope(name);
    return entered.ok() ? entered : Error(item, path, entered.message());
  };
  PENSTOCK_RETURN_IF_ERROR(enter(group.name.empty() ? list_.FreeName("repeat") : group.name));
  for (int64_t i = 0; i < group.count; ++i) {
    PENSTOCK_RETURN_IF_ERROR(enter(absl::StrCat(i)));
    PENSTOCK_RETURN_IF_ERROR(ReadList(group.layers, absl::StrCat(path, ".layers")));
    list_.LeaveScope();
  }
  list_.LeaveScope();
  return absl::OkStatus();
}

absl::Status LayersReader::ReadResidual(const YAML::Node& item, const YAML::Node& body,
                                        const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const Group group,
                            ReadGroup(item, body, path, {"name", "of", "layers"}));
  if (!group.of.empty()) list_.ContinueFrom(group.of);
  const std::string input = list_.before();
  PENSTOCK_RETURN_IF_ERROR(ReadList(group.layers, absl::StrCat(path, ".layers")));
  return AddOp({.name = group.name, .op = "add", .inputs = {input, list_.before()}}, item, path);
}

absl::Status LayersReader::ReadBlock(const YAML::Node& item, const YAML::Node& body,
                                     const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const Group group, ReadGroup(item, body, path, {"name", "layers"}));
  if (list_.in_block()) {
    return Error(item, path,
                 "stands in another block; a block is one layer, which holds no layers");
  }
  const absl::Status entered =
      list_.EnterScope(group.name.empty() ? list_.FreeName("block") : group.name);
  if (!entered.ok()) return Error(item, path, entered.message());
  list_.BeginBlock();
  PENSTOCK_RETURN_IF_ERROR(ReadList(group.layers, absl::StrCat(path, ".layers")));
  list_.EndBlock();
  list_.LeaveScope();
  return absl::OkStatus();
}

absl::Status LayersReader::ReadOp(const Op& op, const YAML::Node& item, const YAML::Node& body,
                                  const std::string& path) {
  NodeSpec node = {.op = std::string(op.name)};
  std::string targets;
  Names known;
  for (const AttributeSpec& spec : op.attributes) known.emplace_back(spec.name);
  known.insert(known.end(), {"name", "of", "weights_of"});
  if (op.is_loss()) known.push_back("targets");
  std::map<std::string, YAML::Node> values;
  PENSTOCK_RETURN_IF_ERROR(ReadKeys(
      body, path, known, [&](const std::string& key, const YAML::Node& value) -> absl::Status {
        const std::string key_path = absl::StrCat(path, ".", key);
        for (const AttributeSpec& spec : op.attributes) {
          if (spec.name != key) continue;
          std::optional<AttributeValue> read = ValueOf(value, spec.kind);
          if (!read.has_value()) {
            return WrongValue(item, value, key_path, kKindNames[static_cast<int>(spec.kind)]);
          }
          node.attributes.Set(key, *std::move(read));
          values.emplace(key, value);
          return absl::OkStatus();
        }
        if (key == "name") {
          PENSTOCK_ASSIGN_OR_RETURN(node.name, ReadName(item, value, key_path));
        } else if (key == "of") {
          PENSTOCK_ASSIGN_OR_RETURN(node.inputs, ReadReferences(item, value, key_path));
        } else {
          PENSTOCK_ASSIGN_OR_RETURN((key == "targets" ? targets : node.weights_of),
                                    ReadReference(item, value, key_path));
        }
        return absl::OkStatus();
      }));
  if (!targets.empty()) {
    if (node.inputs.empty()) node.inputs.push_back(list_.before());
    node.inputs.push_back(targets);
  }
  const absl::Status complete = Complete(op.attributes, node.attributes).status();
  if (!complete.ok()) {
    // It starts with the attribute's name.
    const std::string message(complete.message());
    const auto value = values.find(message.substr(0, message.find(": ")));
    return absl::InvalidArgumentError(
        absl::StrCat(PlaceOf(file_name_, (value == values.end() ? item : value->second).Mark()),
                     ": ", path, ".", message));
  }
  return AddOp(std::move(node), item, path);
}

absl::Status LayersReader::AddOp(NodeSpec op, const YAML::Node& item, const std::string& path) {
  const absl::StatusOr<std::string> name = list_.Add(std::move(op));
  if (!name.ok()) return Error(item, path, WithoutRepeatedName(path, name.status().message()));
  places_[*name] = absl::StrCat(PlaceOf(file_name_, item.Mark()), ": ", path);
  return absl::OkStatus();
}

absl::Status LayersReader::Finish(const YAML::Node& items, const std::string& path,
                                  v1::ModelGraph& graph) {
  absl::StatusOr<v1::ModelGraph> built = std::move(list_).Build();
  if (built.ok()) {
    graph = *std::move(built);
    return absl::OkStatus();
  }
  const std::string message(built.status().message());
  const auto place = places_.find(message.substr(0, message.find(": ")));
  if (place == places_.end()) return Error(items, path, message);
  return absl::InvalidArgumentError(
      absl::StrCat(place->second, ": ", WithoutRepeatedName(place->second, message)));
}

}  // namespace

absl::Status ReadLayers(const YAML::Node& items, const std::string& file_name,
                        const std::string& path, v1::ModelGraph& graph) {
  LayersReader reader(file_name);
  PENSTOCK_RETURN_IF_ERROR(reader.ReadList(items, path));
  return reader.Finish(items, path, graph);
}

}  // namespace penstock
