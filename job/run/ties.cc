#include "job/run/ties.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compute/parameter_arena.h"
#include "job/keys/check_fields.h"

namespace penstock {
namespace {

int32_t PartOf(absl::Span<const LayerRange> parts, int layer) {
  const auto part = std::find_if(parts.begin(), parts.end(),
                                 [layer](const LayerRange& range) { return layer < range.end(); });
  return static_cast<int32_t>(part - parts.begin());
}

TiedSum SumOf(const Tie& tie, absl::Span<const LayerRange> parts) {
  TiedSum sum;
  int64_t uses_of_first = 0;
  for (const int layer : tie.uses) {
    const int32_t part = PartOf(parts, layer);
    if (sum.parts.empty() || sum.parts.back() != part) sum.parts.push_back(part);
    if (sum.parts.size() == 1) ++uses_of_first;
  }
  sum.exchanges = sum.parts.size() == 2 && uses_of_first == 1;
  return sum;
}

}  // namespace

std::vector<TieGroup> TieGroupsOf(const ModelGraph& model, absl::Span<const LayerRange> parts) {
  std::map<int, TieGroup> by_owner;
  for (size_t tie = 0; tie < model.ties.size() && !parts.empty(); ++tie) {
    if (model.ties[tie].frozen()) continue;
    TiedSum sum = SumOf(model.ties[tie], parts);
    if (sum.parts.size() < 2) continue;
    TieGroup& group = by_owner[model.ties[tie].owner()];
    std::vector<int32_t> all;
    std::set_union(group.parts.begin(), group.parts.end(), sum.parts.begin(), sum.parts.end(),
                   std::back_inserter(all));
    group.parts = std::move(all);
    group.sums.push_back({static_cast<int>(tie), std::move(sum)});
  }
  // Those of the same parts are added up together: a REDUCE waits for all its members.
  std::vector<TieGroup> groups;
  for (auto& entry : by_owner) {
    TieGroup& group = entry.second;
    const auto same = std::find_if(groups.begin(), groups.end(), [&group](const TieGroup& known) {
      return known.parts == group.parts;
    });
    if (same == groups.end()) {
      groups.push_back(std::move(group));
    } else {
      same->sums.insert(same->sums.end(), group.sums.begin(), group.sums.end());
    }
  }
  return groups;
}

void AddTieGroups(absl::Span<const TieGroup> groups, Topology& topology) {
  std::vector<std::vector<int32_t>> sharing;
  for (const TieGroup& group : groups) sharing.push_back(group.parts);
  TieParts(topology, sharing);
}

const TieGroup& TieGroupOf(absl::Span<const TieGroup> groups, const Topology& topology,
                           GroupId id) {
  // They are the last ones of the topology, all of one pipeline and then all of the next.
  const size_t from_end = topology.groups.size() - 1 - static_cast<size_t>(id.value);
  PENSTOCK_CHECK(!groups.empty() && topology.IsOfTies(topology.groups[id.value]));
  return groups[groups.size() - 1 - from_end % groups.size()];
}

std::vector<LayerRange> LayersOfParts(const Topology& topology,
                                      absl::Span<const LayerRange> layers) {
  std::vector<LayerRange> parts(topology.parts());
  for (int32_t id = 0; id < topology.stages(); ++id) {
    parts[topology[StageId(id)].part] = layers[id];
  }
  return parts;
}

std::vector<LayerRange> SomeParts(const ResolvedJob& job, int64_t stages) {
  std::vector<LayerRange> parts;
  const bool anywhere = job.method->synchronous;
  const int never_cut = job.model.first_stage_layers_min() - 1;
  for (int64_t part = 0; part < stages && (anywhere || !job.stage_layers.empty()); ++part) {
    const int first = parts.empty() ? 0 : parts.back().end();
    const int even_end = never_cut + static_cast<int>(job.model.stages_max() * (part + 1) / stages);
    parts.push_back({first, job.stage_layers.empty() ? even_end - first : job.stage_layers[part]});
  }
  return parts;
}

int64_t TiedBytes(const ModelGraph& model, int tie) {
  const int owner = model.ties[tie].owner();
  return ParameterArena(model, {owner, 1}).tied(tie).count * SizeOf(DType::kF32);
}

std::vector<bool> PlacesToCut(const ResolvedJob& job) {
  std::vector<bool> places(job.model.size(), true);
  std::fill(places.begin() + 1, places.begin() + job.model.first_stage_layers_min(), false);
  if (job.method->synchronous) return places;
  for (const Tie& tie : job.model.ties) {
    if (tie.frozen()) continue;
    std::fill(places.begin() + tie.uses.front() + 1, places.begin() + tie.uses.back() + 1, false);
  }
  return places;
}

absl::Status CheckParts(const ResolvedJob& job, absl::Span<const LayerRange> parts) {
  const ModelGraph& model = job.model;
  const int least = model.first_stage_layers_min();
  if (parts.size() > 1 && parts.front().count < least) {
    return InvalidKey(
        "pipeline.stage_layers",
        absl::StrCat("cuts the model before layer ", parts.front().count, ", ",
                     model.layers[parts.front().count].name,
                     ", but no layer in front of it has parameters, so that no gradient would flow "
                     "back over the cut; give the first stage at least ",
                     least, " layers, ", model.layers.front().name, " to ",
                     model.layers[least - 1].name));
  }
  if (job.method->synchronous || parts.empty()) return absl::OkStatus();
  for (const Tie& tie : job.model.ties) {
    if (tie.frozen()) continue;
    const int first = tie.uses.front();
    const int last = tie.uses.back();
    const int32_t part_of_first = PartOf(parts, first);
    const int32_t part_of_last = PartOf(parts, last);
    if (part_of_first == part_of_last) continue;
    return InvalidKey(
        "pipeline.method",
        absl::StrCat(job.method->name, " updates every stage by itself, so stages ", part_of_first,
                     " and ", part_of_last, " cannot share ", tie.parameters.front().name,
                     ", which layers ", job.model.layers[first].name, " and ",
                     job.model.layers[last].name, " use; keep layers ", first, " to ", last,
                     " on one stage (pipeline.stage_layers), give each use weights of its own "
                     "(model.untie: true), or use a method that drains at every step"));
  }
  return absl::OkStatus();
}

}  // namespace penstock
