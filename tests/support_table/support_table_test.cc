// What works with what: resolves a job for every family of models with every method and every feature, and writes what
// is refused into docs/support.md, in the words of the refusal. Nothing is listed here a second time: families are those
// of job.proto, methods those of the catalog, and a key of a family that makes a difference is found by trying it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "inference/greedy_decoder.h"
#include "inference/hugging_face.h"
#include "inference/text_generator.h"
#include "job/defaults.h"
#include "job/model_graph.h"
#include "job/open_job.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "job/yaml/yaml.h"
#include "model/metric.h"
#include "schedule/text.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using google::protobuf::FieldDescriptor;

constexpr char kDocument[] = "docs/support.md";
constexpr char kListedMethod[] = "schedule-file";
// What a message ends with that names another method than the job.
constexpr char kStandInMethod[] = "1f1b";
constexpr absl::string_view kStandIn = " (1f1b stands for searched until its order is found)";

// ------------------------------------------------------------------------------------ jobs

// A job that is merged from pieces of YAML, as a file would have them together.
v1::JobSpec SpecOf(const std::vector<std::string>& pieces) {
  v1::JobSpec spec;
  for (const std::string& piece : pieces) {
    v1::JobSpec part;
    YamlPositions positions;
    EXPECT_THAT(ReadYamlMessage(piece, "support.yaml", part, positions), IsOk()) << piece;
    spec.MergeFrom(part);
  }
  return spec;
}

// Four stages, so that methods with two on a worker have two workers.
constexpr char kTraining[] = R"(
name: support
training:
  steps: 4
  batch: 16
  microbatches: 8
  optimizer: {sgd: {learning_rate: 0.1, momentum: 0.9}}
pipeline: {stages: 4}
)";
constexpr char kSynthetic[] = "data: {synthetic: {}}";

// Has none of kModelFeatures.
constexpr char kPlainModel[] =
    "model: {gpt: {layers: 1, width: 8, heads: 2, context: 8, tied_head: false}}";

// The step of a schedule file: one of 1f1b, or where a worker has several stages of looped-bfs.
std::string ListedStep(const std::vector<int32_t>& replicas, int32_t stages_per_worker) {
  v1::JobSpec spec = SpecOf({kTraining, kSynthetic, kPlainModel});
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  pipeline.mutable_replicas()->Assign(replicas.begin(), replicas.end());
  if (stages_per_worker > 1) {
    pipeline.set_method("looped-bfs");
    pipeline.set_stages_per_worker(stages_per_worker);
  }
  FillDefaults(spec);
  const ResolvedJob job = ResolveJob(spec).value();
  return PrintSchedule(
      ScheduleOfSteps(job, ScheduleOptionsOf(job, TopologyOf(job, 4)), 0, 1).value());
}

// All that a job can name, and a step that it lists.
std::vector<std::string> MethodNames() {
  std::vector<std::string> names;
  for (const Method& method : Methods()) names.emplace_back(method.name);
  names.emplace_back(SearchedMethod().name);
  names.emplace_back(kListedMethod);
  return names;
}

// Whether the job can run: what ResolveJob says, of an order that is searched also before it is found.
absl::Status Resolve(v1::JobSpec spec, const std::string& method) {
  using Placed = std::pair<std::vector<int32_t>, int32_t>;  // replicas, stages on a worker
  static std::map<Placed, std::string>& steps = *new std::map<Placed, std::string>();
  v1::PipelineSpec& pipeline = *spec.mutable_pipeline();
  const bool is_listed = method == kListedMethod;
  const bool is_searched = method == SearchedMethod().name;
  if (is_listed) {
    pipeline.set_schedule_file("step.txt");
  } else {
    pipeline.set_method(method);
  }
  if (is_searched) {
    const absl::Status open = ResolveSubmitted(spec).status();
    if (!open.ok()) return open;
  }
  if (is_listed || is_searched) {
    Placed placed = {{}, 1};  // what is searched has the job's
    if (is_searched) {
      placed.first.assign(pipeline.replicas().begin(), pipeline.replicas().end());
      placed.second = std::max(1, pipeline.stages_per_worker());
    }
    const auto [step, is_new] = steps.try_emplace(placed);
    if (is_new) step->second = ListedStep(placed.first, placed.second);
    pipeline.set_schedule(step->second);
  }
  FillDefaults(spec);
  return ResolveJob(spec).status();
}

// ------------------------------------------------------------------------------------ families

// What makes a model differ for methods.
struct Traits {
  bool shares = false;      // weights
  bool carries = false;     // state from step to step
  bool statistics = false;  // of a normalisation
  friend bool operator==(const Traits&, const Traits&) = default;
};

using Trait = bool Traits::*;

Traits TraitsOf(const ModelGraph& graph) {
  Traits traits = {.shares = graph.tied(), .carries = graph.FindCarrying() != nullptr};
  for (const Node& node : graph.nodes) {
    for (const BufferSpec& buffer : node.buffers) {
      traits.statistics |= buffer.kind == BufferSpec::Kind::kStatistic;
    }
  }
  return traits;
}

// Numbers that families ask for.
std::string NumbersOf(const std::string& family) {
  if (family == "gpt") return "{layers: 1, width: 8, heads: 2, context: 8}";
  if (family == "llama") return "{layers: 1, width: 8, heads: 2, hidden: 8, context: 8}";
  if (family == "bert") return "{context: 8}";
  return family == "s2vt" ? "{vocabulary: 30}" : "{}";
}

struct Variant {
  std::string key;  // of the family, that differs from its default; empty: none
  bool value = false;
  v1::JobSpec model;  // nothing else is set
  ModelGraph graph;
  Traits traits;
};

struct Family {
  std::string name;
  std::vector<Variant> variants;  // the default; then each key that changes traits
  const Variant& usual() const { return variants.front(); }
};

Variant VariantOf(const std::string& family, const std::string& key = "", bool value = false) {
  Variant variant = {.key = key, .value = value};
  variant.model = SpecOf({absl::StrCat("model: {", family, ": ", NumbersOf(family), "}"),
                          key.empty() ? "{}"
                                      : absl::StrCat("model: {", family, ": {", key, ": ",
                                                     value ? "true" : "false", "}}")});
  v1::JobSpec filled = variant.model;
  FillDefaultsOfAnyMethod(filled);
  absl::StatusOr<ModelGraph> graph = BuildModel(filled.model());
  EXPECT_THAT(graph, IsOk()) << family;
  if (graph.ok()) variant.graph = *std::move(graph);
  variant.traits = TraitsOf(variant.graph);
  return variant;
}

std::vector<Family> Families() {
  std::vector<Family> families;
  const google::protobuf::OneofDescriptor& all = *v1::ModelSpec::descriptor()->oneof_decl(0);
  for (int i = 0; i < all.field_count(); ++i) {
    const FieldDescriptor& field = *all.field(i);
    const google::protobuf::Descriptor* const message = field.message_type();
    if (message == v1::ModelGraph::descriptor()) continue;
    if (message == v1::HuggingFaceSpec::descriptor()) continue;  // becomes one of the others
    Family& family = families.emplace_back();
    family.name = field.name();
    family.variants.push_back(VariantOf(family.name));
    for (int k = 0; k < field.message_type()->field_count(); ++k) {
      const FieldDescriptor& key = *field.message_type()->field(k);
      if (key.cpp_type() != FieldDescriptor::CPPTYPE_BOOL) continue;
      for (const bool value : {false, true}) {
        Variant variant = VariantOf(family.name, key.name(), value);
        if (variant.traits == family.usual().traits) continue;
        family.variants.push_back(std::move(variant));
      }
    }
  }
  return families;
}

// "yes, unless `tied_head: false`".
std::string TraitText(const Family& family, Trait trait) {
  const bool usual = family.usual().traits.*trait;
  for (const Variant& variant : family.variants) {
    if (variant.traits.*trait == usual) continue;
    return absl::StrCat(usual ? "yes, unless `" : "with `", variant.key, ": ",
                        variant.value ? "true" : "false", "`");
  }
  return usual ? "yes" : "no";
}

// ------------------------------------------------------------------------------------ features

struct Feature {
  std::string name;
  std::string yaml;
};

const Feature kModelFeatures[] = {
    {"weights that several stages share",
     "model: {gpt: {layers: 1, width: 8, heads: 2, context: 8, tied_head: true}}"},
    {"state that is carried from step to step", "model: {lstm_lm: {layers: 3, carried: true}}"},
    {"running statistics of a batch norm", "model: {cifar_resnet: {depth: 8}}"},
};
constexpr Trait kTraits[] = {&Traits::shares, &Traits::carries, &Traits::statistics};

std::vector<Feature> JobFeatures() {
  std::vector<Feature> features = {
      {"recomputation", "pipeline: {recompute: all}"},
      {"offloaded stashes", "pipeline: {offload: all}"},
      {"streamed weights", "pipeline: {stream_weights: on}"},
      {"weights and state in files", "pipeline: {stream_weights: file}"},
      {"compressed messages", "pipeline: {compress: int8}"},
      {"replicas, as many of each stage", "pipeline: {replicas: [2]}"},
      {"replicas, unlike numbers", "pipeline: {replicas: [2, 1, 1, 1]}"},
      {"local steps", "pipeline: {local_steps: 2}"},
      {"updates within a step", "pipeline: {update_every: 2}"},
      {"several stages on a worker", "pipeline: {stages_per_worker: 2}"},
      {"stages that go round other numbers of workers", "pipeline: {workers: 2}"},
      {"stages that share a forward", "pipeline: {stages_per_forward: 2}"},
      {"a split that the job names", "pipeline: {stage_layers: [1, 1, 1, 2]}"},
      {"recorded order", "pipeline: {order: recorded}"},
      {"steps that drain first", "pipeline: {synchronous_steps: 1}"},
      {"sampled delays", "pipeline: {rpd: {delta: 14}}"},
      {"a checkpoint and a validation",
       "{checkpoint: {every_steps: 2, directory: d}, validation: {every_steps: 2}}"},
      {"another split during the run",
       "{feedback: {replan: auto}, checkpoint: {every_steps: 2, directory: d}}"},
      {"bf16", "training: {precision: bf16}"},
      {"fp8", "training: {precision: fp8}"},
      {"stochastic rounding", "training: {precision: bf16, rounding: stochastic}"},
      {"AdamW", "training: {optimizer: {adamw: {learning_rate: 0.1}}}"},
      {"NAdamW", "training: {optimizer: {nadamw: {learning_rate: 0.1}}}"},
      {"Muon", "training: {optimizer: {muon: {learning_rate: 0.1}}}"},
      {"clipping of each layer", "training: {clip: {layer_norm: 1}}"},
      {"clipping of the whole gradient", "training: {clip: {global_norm: 1}}"},
      {"old weights in the host's memory", "training: {stash: host}"},
      {"CUDA graphs", "training: {cuda_graphs: \"on\"}"},
      {"rates by delay", "training: {staleness: {rescheduled_steps: 2}}"},
      {"momentum by stage", "training: {staleness: {stage_momentum: 0.9}}"},
      {"compensation of delays", "training: {staleness: {delay_compensation: 0.5}}"},
      {"adaptive compensation of delays",
       "training: {staleness: {delay_compensation: 2, adaptive_compensation: true}}"},
      {"feedback of errors", "training: {staleness: {error_feedback: true}}"},
  };
  for (const Weights* weights : kAllWeights) {
    features.push_back({absl::StrCat("weights: ", weights->name),
                        absl::StrCat("pipeline: {weights: ", weights->name, "}")});
  }
  return features;
}

// ------------------------------------------------------------------------------------ tables

// `text` with each `name` in it, where it is no part of a longer one, as `placeholder`.
std::string Without(const std::string& text, const std::string& name,
                    const std::string& placeholder) {
  const auto is_part = [](char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; };
  std::string result;
  size_t at = 0;
  for (size_t found; (found = text.find(name, at)) != std::string::npos;) {
    const size_t end = found + name.size();
    const bool whole =
        (found == 0 || !is_part(text[found - 1])) && (end == text.size() || !is_part(text[end]));
    absl::StrAppend(&result, text.substr(at, found - at), whole ? placeholder : name);
    at = end;
  }
  return result + text.substr(at);
}

// A table of who refuses what, and why. Features that the same refuse with the same words share a row.
class RefusalTable {
 public:
  // `placeholder` stands for the name of a method or a family.
  explicit RefusalTable(std::string placeholder) : placeholder_(std::move(placeholder)) {}

  // `in_a_job`: how a job says it; may be empty. `check`: by subject.
  void Add(const std::string& feature, const std::string& in_a_job,
           const std::vector<std::string>& subjects,
           const std::function<absl::Status(const std::string&)>& check) {
    std::vector<Row> rows;
    for (const std::string& subject : subjects) {
      const absl::Status status = check(subject);
      if (status.ok()) continue;
      const std::string reason = General(std::string(status.message()), subject);
      const auto known = std::find_if(rows.begin(), rows.end(),
                                      [&](const Row& row) { return row.reason == reason; });
      Row& row = known == rows.end() ? rows.emplace_back() : *known;
      row.reason = reason;
      row.subjects.push_back(subject);
    }
    if (rows.empty()) rows.emplace_back();
    for (Row& row : rows) {
      const auto alike = std::find_if(rows_.begin(), rows_.end(), [&](const Row& other) {
        return other.subjects == row.subjects && other.reason == row.reason;
      });
      Row& kept = alike == rows_.end() ? rows_.emplace_back(std::move(row)) : *alike;
      kept.features.push_back(feature);
      if (!in_a_job.empty()) kept.in_a_job.push_back(absl::StrCat("`", in_a_job, "`"));
    }
  }

  std::string Text() const {
    const bool says_how = std::any_of(rows_.begin(), rows_.end(),
                                      [](const Row& row) { return !row.in_a_job.empty(); });
    std::string table =
        absl::StrCat("| feature |", says_how ? " in a job |" : "",
                     " refused by | because |\n|---|---|---|", says_how ? "---|" : "", "\n");
    for (const Row& row : rows_) {
      const std::string how = absl::StrCat(" ", absl::StrJoin(row.in_a_job, " "), " |");
      const std::string reason = row.subjects.size() == 1
                                     ? Without(row.reason, placeholder_, row.subjects.front())
                                     : row.reason;
      absl::StrAppend(&table, "| ", absl::StrJoin(row.features, "; "), " |", says_how ? how : "",
                      " ", row.subjects.empty() ? "none" : absl::StrJoin(row.subjects, ", "), " | ",
                      absl::StrReplaceAll(reason, {{"|", "\\|"}, {"_", "\\_"}, {"*", "\\*"}}),
                      " |\n");
    }
    return table;
  }

 private:
  struct Row {
    std::vector<std::string> features;
    std::vector<std::string> in_a_job;
    std::vector<std::string> subjects;
    std::string reason;  // with placeholders
  };

  std::string General(std::string message, std::string subject) const {
    if (absl::EndsWith(message, kStandIn)) {
      message.erase(message.size() - kStandIn.size());
      subject = kStandInMethod;
    }
    for (const Weights* weights : kAllWeights) {
      message =
          absl::StrReplaceAll(message, {{absl::StrCat("\"", weights->name, "\""), "WEIGHTS"}});
    }
    return Without(message, subject, placeholder_);
  }

  std::string placeholder_;
  std::vector<Row> rows_;
};

std::string FamiliesTable(const std::vector<Family>& families) {
  std::string table =
      "| family | work is counted in | validations show | shares weights | carries state | has "
      "running "
      "statistics |\n|---|---|---|---|---|---|\n";
  for (const Family& family : families) {
    std::vector<std::string> metrics = {"loss"};
    for (const Metric* metric : MetricsOf(family.usual().graph))
      metrics.emplace_back(metric->label);
    absl::StrAppend(&table, "| `", family.name, "` | ",
                    family.usual().graph.has_tokens() ? "tokens" : "samples", " | ",
                    absl::StrJoin(metrics, ", "));
    for (const Trait trait : kTraits) absl::StrAppend(&table, " | ", TraitText(family, trait));
    absl::StrAppend(&table, " |\n");
  }
  return table;
}

// What a family's models read, and what they can be used for.
std::string UsesTable(const std::vector<Family>& families) {
  RefusalTable table("FAMILY");
  std::vector<std::string> names;
  for (const Family& family : families) names.push_back(family.name);
  const auto add = [&](const std::string& use, const std::string& in_a_job,
                       const std::function<absl::Status(const Variant&)>& check) {
    table.Add(use, in_a_job, names, [&](const std::string& name) {
      const auto family = std::find_if(families.begin(), families.end(),
                                       [&](const Family& f) { return f.name == name; });
      return check(family->usual());
    });
  };
  for (const Feature& data :
       {Feature{"a text", "data: {text: {path: FILE}}"},
        Feature{"token files", "data: {tokens: {path: FILE.bin}}"},
        Feature{"records", "data: {records: {path: DIR}}"},
        Feature{"pairs", "data: {pairs: {path: DIR}}"}, Feature{"made-up values", kSynthetic}}) {
    add(data.name, data.yaml, [&](const Variant& variant) {
      v1::JobSpec spec = SpecOf({kTraining, data.yaml});
      spec.MergeFrom(variant.model);
      spec.mutable_pipeline()->set_stages(1);
      return Resolve(spec, "1f1b");
    });
  }
  add("`penstock evaluate`", "", [](const Variant&) { return absl::OkStatus(); });
  add("`penstock generate`", "", [](const Variant& variant) {
    return CheckGeneratesText(variant.graph, /*has_tokenizer=*/false);
  });
  add("`penstock evaluate --decode`", "",
      [](const Variant& variant) { return GreedyDecoder::CheckDecodes(variant.graph); });
  add("`penstock export`", "",
      [](const Variant& variant) { return CheckExportsHuggingFace(variant.graph); });
  return table.Text();
}

absl::Status ResolveFeatures(const std::vector<std::string>& features, const std::string& method) {
  v1::JobSpec spec = SpecOf({kTraining, kSynthetic});
  const v1::JobSpec said = SpecOf(features);
  spec.MergeFrom(said.has_model() ? v1::JobSpec() : SpecOf({kPlainModel}));
  spec.MergeFrom(said);
  return Resolve(spec, method);
}

std::vector<Feature> AllFeatures() {
  std::vector<Feature> features(std::begin(kModelFeatures), std::end(kModelFeatures));
  for (Feature& feature : JobFeatures()) features.push_back(std::move(feature));
  return features;
}

std::string FeaturesTable() {
  RefusalTable table("METHOD");
  for (const Feature& feature : AllFeatures()) {
    table.Add(feature.name, feature.yaml, MethodNames(),
              [&](const std::string& method) { return ResolveFeatures({feature.yaml}, method); });
  }
  return table.Text();
}

// The key that a feature sets, so that two of one key are no pair: "training: {clip".
std::string KeyOf(const Feature& feature) {
  return feature.yaml.substr(0, feature.yaml.find(':', feature.yaml.find('{')));
}

// What a method takes one by one, and not together.
std::string PairsTable() {
  RefusalTable table("METHOD");
  const std::vector<Feature> features = AllFeatures();
  std::map<std::pair<std::string, std::string>, bool> alone;
  for (const std::string& method : MethodNames()) {
    for (const Feature& feature : features) {
      alone[{method, feature.name}] = ResolveFeatures({feature.yaml}, method).ok();
    }
  }
  for (size_t i = 0; i < features.size(); ++i) {
    for (size_t j = i + 1; j < features.size(); ++j) {
      const Feature& one = features[i];
      const Feature& other = features[j];
      if (KeyOf(one) == KeyOf(other)) continue;
      const auto check = [&](const std::string& method) {
        if (!alone[{method, one.name}] || !alone[{method, other.name}]) return absl::OkStatus();
        return ResolveFeatures({one.yaml, other.yaml}, method);
      };
      const std::vector<std::string> methods = MethodNames();
      if (std::all_of(methods.begin(), methods.end(),
                      [&](const std::string& method) { return check(method).ok(); })) {
        continue;
      }
      table.Add(absl::StrCat(one.name, " with ", other.name), "", methods, check);
    }
  }
  return table.Text();
}

// Puts the tables in the place of those that the document has.
std::string WithTables(std::string document,
                       const std::vector<std::pair<std::string, std::string>>& tables) {
  for (const auto& [name, table] : tables) {
    const std::string begin = absl::StrCat("<!-- ", name, " -->\n"), end = "<!-- end -->\n";
    const size_t from = document.find(begin);
    const size_t to = document.find(end, from);
    EXPECT_TRUE(from != std::string::npos && to != std::string::npos)
        << kDocument << " has no place for the table " << name;
    if (from == std::string::npos || to == std::string::npos) continue;
    document.replace(from + begin.size(), to - from - begin.size(), table);
  }
  return document;
}

TEST(SupportTable, IsWhatJobsAreRefusedFor) {
  std::ifstream file(absl::StrCat(PENSTOCK_SOURCE_DIR, "/", kDocument));
  std::stringstream document;
  document << file.rdbuf();
  const std::vector<Family> families = Families();
  ExpectEqualsSourceFile(kDocument,
                         WithTables(document.str(), {{"families", FamiliesTable(families)},
                                                     {"uses", UsesTable(families)},
                                                     {"features", FeaturesTable()},
                                                     {"pairs", PairsTable()}}));
}

// A family with a method and a feature is refused if and only if the method refuses the feature, or what the model has.
// So the tables of two list all refusals of three.
TEST(SupportTable, OfTwo_HasAllRefusalsOfThree) {
  const std::vector<Feature> features = JobFeatures();
  std::map<std::pair<std::string, std::string>, bool> takes;
  for (const std::string& method : MethodNames()) {
    for (const Feature& feature : kModelFeatures) {
      takes[{method, feature.name}] = ResolveFeatures({feature.yaml}, method).ok();
    }
    for (const Feature& feature : features) {
      takes[{method, feature.name}] = ResolveFeatures({feature.yaml}, method).ok();
    }
  }
  int resolved = 0;
  for (const Family& family : Families()) {
    for (const Variant& variant : family.variants) {
      // The layers of the plain model are fewer than those of most.
      const int behind = variant.graph.size() - 3;
      ASSERT_GE(behind, 1) << family.name;
      for (const std::string& method : MethodNames()) {
        bool takes_model = true;
        for (size_t i = 0; i < std::size(kTraits); ++i) {
          if (!(variant.traits.*kTraits[i])) continue;
          takes_model = takes_model && takes[{method, kModelFeatures[i].name}];
        }
        for (const Feature& feature : features) {
          v1::JobSpec spec = SpecOf({kTraining, kSynthetic, feature.yaml});
          spec.MergeFrom(variant.model);
          if (spec.pipeline().stage_layers_size() > 0) {
            spec.mutable_pipeline()->set_stage_layers(3, behind);
          }
          const absl::Status status = Resolve(spec, method);
          EXPECT_EQ(status.ok(), (takes_model && takes[{method, feature.name}]))
              << family.name << " " << variant.key << ", " << method << ", " << feature.name << ": "
              << status;
          ++resolved;
        }
      }
    }
  }
  EXPECT_GT(resolved, 9 * 20 * 25);
}

// The words behind which a message says what would do.
constexpr const char* kRemedies[] = {"would do", "; use ",           "or use ",   "leave ",
                                     "; keep ",  "; local-sgd has ", " keep them"};

TEST(SupportTable, Refusals_NameARemedy) {
  for (const Feature& feature : AllFeatures()) {
    for (const std::string& method : MethodNames()) {
      const absl::Status status = ResolveFeatures({feature.yaml}, method);
      if (status.ok()) continue;
      const bool names_one = std::any_of(
          std::begin(kRemedies), std::end(kRemedies),
          [&](const char* words) { return absl::StrContains(status.message(), words); });
      EXPECT_TRUE(names_one) << method << ", " << feature.name << ": " << status;
    }
  }
}

}  // namespace
}  // namespace penstock
