#include "model/render_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/svg.h"

namespace penstock {
namespace {

constexpr double kPortWidth = 150;
constexpr double kBoxWidth = 420;
constexpr double kBoxHeight = 44;
constexpr double kGap = 26;  // between boxes
constexpr double kLaneWidth = 14;
constexpr double kMargin = 24;
constexpr double kTop = 76;

// A value that layers behind the next one read.
struct Skip {
  int value = 0;
  int from = 0;
  std::set<int> readers;  // behind the next layer
  int lane = 0;
};

std::string Px(double value) { return SvgNumber(value, 1); }

double BoxTop(int layer) { return kTop + layer * (kBoxHeight + kGap); }
double BoxMiddle(int layer) { return BoxTop(layer) + kBoxHeight / 2; }
constexpr double kBoxLeft = kMargin + kPortWidth;
constexpr double kBoxRight = kBoxLeft + kBoxWidth;

std::string LabelOf(const ModelGraph& model, int value) {
  return absl::StrCat(model.NameOf(value), " ", model.TypeOf(value).ToString());
}

// The layers that read each value, other than the one that makes it.
std::map<int, std::set<int>> ReadersOf(const ModelGraph& model) {
  std::map<int, std::set<int>> readers;
  for (int n = 0; n < static_cast<int>(model.nodes.size()); ++n) {
    const int layer = model.LayerOfNode(n);
    for (const int value : model.nodes[n].inputs) {
      const bool inside = !model.is_port(value) && model.LayerOfNode(model.NodeOf(value)) == layer;
      if (!inside) readers[value].insert(layer);
    }
  }
  return readers;
}

// Each in the first lane that is free along its way.
void AssignLanes(std::vector<Skip>& skips) {
  std::vector<int> free_from;  // by lane: the first layer at which it is free
  std::sort(skips.begin(), skips.end(),
            [](const Skip& a, const Skip& b) { return a.from < b.from; });
  for (Skip& skip : skips) {
    const auto lane = std::find_if(free_from.begin(), free_from.end(),
                                   [&](int layer) { return layer <= skip.from; });
    skip.lane = static_cast<int>(lane - free_from.begin());
    if (lane == free_from.end()) free_from.push_back(0);
    free_from[skip.lane] = *skip.readers.rbegin();
  }
}

class GraphPicture {
 public:
  GraphPicture(const ModelGraph& model, const std::string& title) : model_(model) {
    FindEdges();
    int lanes = 0;
    for (const Skip& skip : skips_) lanes = std::max(lanes, skip.lane + 1);
    Begin(title, kBoxRight + kMargin + kLaneWidth * (lanes + 1));
    for (int layer = 0; layer < model_.size(); ++layer) Box(layer);
    for (const auto& [layer, values] : ports_) Ports(layer, values);
    for (const auto& [layer, values] : straight_) Straight(layer, values);
    for (const Skip& skip : skips_) Beside(skip);
    svg_ += "</svg>\n";
  }

  std::string svg() && { return std::move(svg_); }

 private:
  void FindEdges() {
    for (const auto& [value, readers] : ReadersOf(model_)) {
      if (model_.is_port(value)) {
        for (const int layer : readers) ports_[layer].push_back(value);
        continue;
      }
      Skip skip = {
          .value = value, .from = model_.LayerOfNode(model_.NodeOf(value)), .readers = readers};
      if (skip.readers.erase(skip.from + 1) > 0) straight_[skip.from].push_back(value);
      if (!skip.readers.empty()) skips_.push_back(std::move(skip));
    }
    AssignLanes(skips_);
  }

  void Begin(const std::string& title, double width) {
    const std::string height = Px(BoxTop(model_.size()) + kMargin - kGap);
    absl::StrAppend(
        &svg_, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", Px(width), " ", height,
        "\" width=\"", Px(width), "\" height=\"", height, "\" role=\"img\">\n",
        "<style>text{font:12px sans-serif;fill:#20262e}.t{font-size:18px;font-weight:600}"
        ".n{font-weight:600}.d{fill:#5a6675}.b{fill:#fff}.l{fill:#eef3fa;stroke:#2f6fc4}"
        ".e{fill:none;stroke:#5a6675;marker-end:url(#a)}.s{stroke:#d1622b}.m{fill:#5a6675}"
        "@media(prefers-color-scheme:dark){text{fill:#e6e9ee}.d{fill:#98a5b4}.b{fill:#14181e}"
        ".l{fill:#1b2531;stroke:#6aa5f0}.e{stroke:#98a5b4}.s{stroke:#ee8f5c}.m{fill:#98a5b4}}"
        "</style>\n<defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
        "markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path class=\"m\" "
        "d=\"M0 0 8 4 0 8z\"/></marker></defs>\n<rect class=\"b\" width=\"100%\" "
        "height=\"100%\"/>\n");
    Text(kMargin, 34, "t", "start", title);
    Text(kMargin, 54, "d", "start",
         absl::StrFormat("%d layers, %d parameters", model_.size(), model_.parameter_count()));
  }

  void Text(double x, double y, const char* style, const char* anchor, const std::string& text) {
    absl::StrAppend(&svg_, "<text class=\"", style, "\" text-anchor=\"", anchor, "\" x=\"", Px(x),
                    "\" y=\"", Px(y), "\">", SvgText(text), "</text>\n");
  }

  // `tip`: what the pointer shows.
  void Edge(const char* style, const std::string& path, const std::string& tip) {
    absl::StrAppend(&svg_, "<path class=\"", style, "\" d=\"", path, "\"><title>", SvgText(tip),
                    "</title></path>\n");
  }

  void Box(int index) {
    const LayerSpec& layer = model_.layers[index];
    const double top = BoxTop(index);
    absl::StrAppend(&svg_, "<rect class=\"l\" rx=\"5\" x=\"", Px(kBoxLeft), "\" y=\"", Px(top),
                    "\" width=\"", Px(kBoxWidth), "\" height=\"", Px(kBoxHeight), "\"/>\n");
    Text(kBoxLeft + 10, top + 18, "n", "start", layer.name);
    Text(kBoxLeft + 10, top + 35, "d", "start", OpsOf(model_, layer));
    Text(kBoxRight - 10, top + 18, "d", "end",
         model_.nodes[layer.end_node() - 1].output.ToString());
    if (layer.parameter_count() > 0) {
      Text(kBoxRight - 10, top + 35, "d", "end",
           absl::StrCat(layer.parameter_count(), " parameters"));
    }
  }

  void Ports(int layer, const std::vector<int>& values) {
    std::vector<std::string> names;
    for (const int value : values) names.push_back(model_.NameOf(value));
    const double y = BoxMiddle(layer);
    Text(kMargin, y - 6, "n", "start", absl::StrJoin(names, ", "));
    Edge("e", absl::StrCat("M", Px(kMargin), " ", Px(y), " H", Px(kBoxLeft)), Labels(values));
  }

  void Straight(int layer, const std::vector<int>& values) {
    Edge("e",
         absl::StrCat("M", Px(kBoxLeft + kBoxWidth / 2), " ", Px(BoxTop(layer) + kBoxHeight), " V",
                      Px(BoxTop(layer + 1))),
         Labels(values));
  }

  void Beside(const Skip& skip) {
    const double x = kBoxRight + kLaneWidth * (skip.lane + 1);
    for (const int reader : skip.readers) {
      Edge("e s",
           absl::StrCat("M", Px(kBoxRight), " ", Px(BoxMiddle(skip.from) + 6), " H", Px(x), " V",
                        Px(BoxMiddle(reader) - 6), " H", Px(kBoxRight)),
           LabelOf(model_, skip.value));
    }
  }

  std::string Labels(const std::vector<int>& values) const {
    return absl::StrJoin(
        values, ", ", [this](std::string* out, int value) { out->append(LabelOf(model_, value)); });
  }

  const ModelGraph& model_;
  std::string svg_;
  std::map<int, std::vector<int>> ports_;     // by the layer that reads them
  std::map<int, std::vector<int>> straight_;  // by the layer that makes them
  std::vector<Skip> skips_;
};

}  // namespace

std::string RenderGraphSvg(const ModelGraph& model, const std::string& title) {
  return GraphPicture(model, title).svg();
}

std::string OpsOf(const ModelGraph& model, const LayerSpec& layer) {
  constexpr int kOpsShown = 4;
  std::vector<std::string> names;
  for (int n = layer.first_node; n < layer.end_node(); ++n) {
    names.emplace_back(model.nodes[n].op->name);
  }
  const int more = static_cast<int>(names.size()) - kOpsShown;
  if (more > 1) names.resize(kOpsShown);
  return absl::StrCat(absl::StrJoin(names, ", "),
                      more > 1 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace penstock
