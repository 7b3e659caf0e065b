#include "inference/greedy_decoder.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

// As data.pairs names what it fills.
constexpr char kSource[] = "source";
constexpr char kSourceLengths[] = "source_lengths";
constexpr char kInputs[] = "inputs";
constexpr char kTargets[] = "targets";

int FindPort(const ModelGraph& model, absl::string_view name, size_t dims) {
  for (size_t port = 0; port < model.ports.size(); ++port) {
    const ValueType& type = model.ports[port].type;
    if (model.ports[port].name == name && type.dtype == DType::kI32 && type.dims.size() == dims) {
      return static_cast<int>(port);
    }
  }
  return -1;
}

absl::Span<const std::byte> BytesOf(const std::vector<int32_t>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(int32_t));
}

int64_t OffsetIn(const Bundle& bundle, int value) {
  const auto part = std::find_if(bundle.parts.begin(), bundle.parts.end(),
                                 [&](const Bundle::Part& p) { return p.value == value; });
  PENSTOCK_CHECK(part != bundle.parts.end());
  return part->offset;
}

}  // namespace

GreedyDecoder::GreedyDecoder(const CheckpointModel& model, const DecoderOptions& options)
    : model_(model), options_(options) {}

absl::StatusOr<GreedyDecoder> GreedyDecoder::Create(Files& files, const CheckpointModel& model,
                                                    const DecoderOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(Annotate(CheckDecodes(model.graph), model.directory));
  GreedyDecoder decoder(model, options);
  decoder.FindPorts();
  PENSTOCK_ASSIGN_OR_RETURN(decoder.backend_, MakeCpuBackend(options.threads));
  PENSTOCK_RETURN_IF_ERROR(decoder.MakeRuns(files));
  return decoder;
}

absl::Status GreedyDecoder::CheckDecodes(const ModelGraph& model) {
  const int source = FindPort(model, kSource, 1);
  const int inputs = FindPort(model, kInputs, 1);
  const int known[] = {source, inputs, FindPort(model, kSourceLengths, 0),
                       FindPort(model, kTargets, 1)};
  const auto found =
      std::count_if(std::begin(known), std::end(known), [](int p) { return p >= 0; });
  if (source < 0 || inputs < 0 || found != static_cast<int64_t>(model.ports.size())) {
    return absl::UnimplementedError(
        "sequences can be decoded for models with the inputs source, inputs, targets and, if they "
        "like, source_lengths, as data.pairs fills them; give the model inputs of these names, or "
        "leave --decode out");
  }
  const int64_t target_time = model.ports[inputs].type.dims[0];
  const ValueType& logits = model.TypeOf(model.nodes.back().inputs.front());
  if (logits.dims.size() == 2 && logits.dims[0] == target_time) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the loss is over ", logits.ToString(),
                                               "; to decode, it has to be over [", target_time,
                                               ", pieces], one row for each step of inputs"));
}

void GreedyDecoder::FindPorts() {
  source_ = FindPort(model_.graph, kSource, 1);
  source_lengths_ = FindPort(model_.graph, kSourceLengths, 0);
  inputs_port_ = FindPort(model_.graph, kInputs, 1);
  source_time_ = model_.graph.ports[source_].type.dims[0];
  target_time_ = model_.graph.ports[inputs_port_].type.dims[0];
  pieces_ = model_.graph.TypeOf(model_.graph.nodes.back().inputs.front()).dims[1];
}

std::vector<bool> GreedyDecoder::NodesThatDepend() const {
  std::vector<bool> depends(model_.graph.nodes.size(), false);
  for (size_t node = 0; node < model_.graph.nodes.size(); ++node) {
    for (const int input : model_.graph.nodes[node].inputs) {
      const bool read =
          model_.graph.is_port(input) ? input == inputs_port_ : depends[model_.graph.NodeOf(input)];
      depends[node] = depends[node] || read;
    }
  }
  return depends;
}

absl::Status GreedyDecoder::MakeRuns(Files& files) {
  const std::vector<bool> depends = NodesThatDepend();
  const auto repeats = [&](int layer) {
    // Shared weights are held once by the stage that has all their uses.
    if (model_.graph.tied() || layer + 1 == model_.graph.size()) return true;
    const auto first = depends.begin() + model_.graph.layers[layer].first_node;
    return std::find(first, first + model_.graph.layers[layer].node_count, true) !=
           first + model_.graph.layers[layer].node_count;
  };
  for (int first = 0; first < model_.graph.size();) {
    LayerRange layers = {first, 1};
    while (layers.end() < model_.graph.size() && repeats(layers.end()) == repeats(first)) {
      ++layers.count;
    }
    Run& run = runs_.emplace_back();
    run.repeats = repeats(first);
    run.output = ActivationsAt(model_.graph, layers.end(), options_.batch);
    const StageOptions options = {
        .layers = layers, .samples = options_.batch, .updates = false, .optimizer = SgdConfig()};
    PENSTOCK_ASSIGN_OR_RETURN(run.stage, Stage::Create(*backend_, model_.graph, options));
    PENSTOCK_RETURN_IF_ERROR(LoadWeights(files, model_, layers, *run.stage));
    first = layers.end();
  }
  for (size_t run = 1; run < runs_.size(); ++run) {
    if (runs_[run].repeats) continue;
    for (const Bundle::Part& part : runs_[run].output.parts) {
      if (!depends[model_.graph.NodeOf(part.value)]) continue;
      passing_.push_back({.run = run,
                          .from = OffsetIn(runs_[run - 1].output, part.value),
                          .to = part.offset,
                          .elements = options_.batch * model_.graph.TypeOf(part.value).elements()});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> GreedyDecoder::PortsOf(const Run& run) {
  std::vector<Tensor> ports;
  for (const int port : run.stage->ports()) {
    Tensor& tensor = ports.emplace_back();
    const std::vector<int32_t>* values = nullptr;
    if (port == source_) values = &sources_;
    if (port == source_lengths_) values = &lengths_;
    if (port == inputs_port_) values = &inputs_;
    if (values == nullptr) continue;  // targets, which the loss alone reads
    PENSTOCK_ASSIGN_OR_RETURN(tensor, run.stage->PortToDevice(port, BytesOf(*values)));
  }
  return ports;
}

absl::StatusOr<std::vector<float>> GreedyDecoder::Logits(bool first) {
  Tensor handed;
  for (size_t number = 0; number + 1 < runs_.size(); ++number) {
    Run& run = runs_[number];
    if (!first && !run.repeats) {
      for (const Passing& passing : passing_) {
        if (passing.run != number) continue;
        std::memcpy(run.handed.data<float>() + passing.to, handed.data<float>() + passing.from,
                    passing.elements * sizeof(float));
      }
      handed = run.handed;
      continue;
    }
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Tensor> ports, PortsOf(run));
    PENSTOCK_ASSIGN_OR_RETURN(Stage::Evaluated evaluated,
                              run.stage->Evaluate(run.stage->version(), std::move(handed), ports));
    handed = std::move(evaluated.output);
    if (!run.repeats) run.handed = handed;
  }
  Stage& last = *runs_.back().stage;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Tensor> ports, PortsOf(runs_.back()));
  return last.Predictions(last.version(), std::move(handed), ports);
}

absl::StatusOr<std::vector<std::vector<int32_t>>> GreedyDecoder::Decode(
    absl::Span<const std::vector<int32_t>> sources) {
  const auto samples = static_cast<int64_t>(sources.size());
  PENSTOCK_CHECK(samples > 0 && samples <= options_.batch);
  // Rows of the batch beyond the sources have a source that ends at once.
  sources_.assign(options_.batch * source_time_, options_.padding);
  lengths_.assign(options_.batch, 1);
  for (int64_t i = 0; i < options_.batch; ++i) {
    const auto row = sources_.begin() + i * source_time_;
    const auto length = i < samples ? static_cast<int64_t>(sources[i].size()) : 0;
    PENSTOCK_CHECK(length <= source_pieces_max());
    if (i < samples) std::copy(sources[i].begin(), sources[i].end(), row);
    row[length] = options_.eos;
    lengths_[i] = static_cast<int32_t>(length + 1);
  }
  inputs_.assign(options_.batch * target_time_, options_.padding);
  for (int64_t i = 0; i < options_.batch; ++i) inputs_[i * target_time_] = options_.bos;

  std::vector<std::vector<int32_t>> targets(samples);
  std::vector<bool> ended(samples, false);
  for (int64_t t = 0; t < target_time_; ++t) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<float> logits, Logits(t == 0));
    for (int64_t i = 0; i < samples; ++i) {
      if (ended[i]) continue;
      const auto row = logits.begin() + (i * target_time_ + t) * pieces_;
      const auto piece = static_cast<int32_t>(std::max_element(row, row + pieces_) - row);
      ended[i] = piece == options_.eos;
      if (ended[i]) continue;
      targets[i].push_back(piece);
      if (t + 1 < target_time_) inputs_[i * target_time_ + t + 1] = piece;
    }
    if (std::find(ended.begin(), ended.end(), false) == ended.end()) break;
  }
  for (Run& run : runs_) run.handed = Tensor();
  return targets;
}

}  // namespace penstock
