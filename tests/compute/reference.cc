#include "tests/compute/reference.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace penstock::reference {
namespace {

// y[r] = x[r] W + b, W [inputs, outputs], or the other way round.
Numbers Linear(const Numbers& x, const Numbers& weight, const Numbers& bias, int64_t inputs,
               bool outputs_first) {
  const auto outputs = static_cast<int64_t>(bias.size());
  const auto rows = static_cast<int64_t>(x.size()) / inputs;
  Numbers y(rows * outputs);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = bias[o];
      for (int64_t i = 0; i < inputs; ++i) {
        sum += x[r * inputs + i] * weight[outputs_first ? o * inputs + i : i * outputs + o];
      }
      y[r * outputs + o] = sum;
    }
  }
  return y;
}

Numbers LayerNorm(const Numbers& x, const Numbers& gain, const Numbers& bias) {
  const auto width = static_cast<int64_t>(gain.size());
  Numbers y(x.size());
  for (size_t first = 0; first < x.size(); first += width) {
    double mean = 0.0;
    for (int64_t c = 0; c < width; ++c) {
      mean += x[first + c] / static_cast<double>(width);
    }
    double variance = 0.0;
    for (int64_t c = 0; c < width; ++c) {
      variance += std::pow(x[first + c] - mean, 2) / static_cast<double>(width);
    }
    for (int64_t c = 0; c < width; ++c) {
      y[first + c] = (x[first + c] - mean) / std::sqrt(variance + 1e-5) * gain[c] + bias[c];
    }
  }
  return y;
}

Numbers Add(Numbers a, const Numbers& b) {
  std::transform(a.begin(), a.end(), b.begin(), a.begin(), std::plus<>());
  return a;
}

// One query against the keys at and before it. `qkv`: rows of [query, key, value].
Numbers AttendRow(const Numbers& qkv, int64_t width, int64_t size, int64_t head, int64_t sample,
                  int64_t time, int64_t t) {
  const auto at = [&](int64_t step, int64_t part, int64_t c) {
    return qkv[((sample * time + step) * 3 + part) * width + head * size + c];
  };
  Numbers weights(t + 1);
  double sum = 0.0;
  for (int64_t s = 0; s <= t; ++s) {
    double score = 0.0;
    for (int64_t c = 0; c < size; ++c) {
      score += at(t, 0, c) * at(s, 1, c);
    }
    weights[s] = std::exp(score / std::sqrt(static_cast<double>(size)));
    sum += weights[s];
  }
  Numbers result(size);
  for (int64_t s = 0; s <= t; ++s) {
    for (int64_t c = 0; c < size; ++c) {
      result[c] += weights[s] / sum * at(s, 2, c);
    }
  }
  return result;
}

Numbers Attend(const Numbers& qkv, const Arguments& a, int64_t width, int64_t heads) {
  const int64_t size = width / heads;
  Numbers output(a.samples * a.time * width);
  for (int64_t sample = 0; sample < a.samples; ++sample) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t t = 0; t < a.time; ++t) {
        const Numbers row = AttendRow(qkv, width, size, head, sample, a.time, t);
        std::copy(row.begin(), row.end(),
                  output.begin() + (sample * a.time + t) * width + head * size);
      }
    }
  }
  return output;
}

double Gelu(double z) {
  return 0.5 * z *
         (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (z + 0.044715 * z * z * z)));
}

Numbers Embedding(const Node& node, const Arguments& a) {
  const int64_t width = node.attributes.integer("width");
  Numbers output;
  for (size_t row = 0; row < a.ids.size(); ++row) {
    for (int64_t c = 0; c < width; ++c) {
      output.push_back(a.parameters[0][a.ids[row] * width + c] +
                       a.parameters[1][static_cast<int64_t>(row) % a.time * width + c]);
    }
  }
  return output;
}

bool OutputsFirst(const Node& node) { return node.attributes.word("layout") == "outputs_first"; }

Numbers AttentionBranch(const Node& node, const Arguments& a) {
  const std::vector<Numbers>& p = a.parameters;
  const int64_t width = node.attributes.integer("width");
  const Numbers qkv = Linear(LayerNorm(a.input, p[0], p[1]), p[2], p[3], width, OutputsFirst(node));
  return Add(a.input, Linear(Attend(qkv, a, width, node.attributes.integer("heads")), p[4], p[5],
                             width, OutputsFirst(node)));
}

Numbers MlpBranch(const Node& node, const Arguments& a) {
  const std::vector<Numbers>& p = a.parameters;
  Numbers hidden = Linear(LayerNorm(a.input, p[0], p[1]), p[2], p[3],
                          node.attributes.integer("width"), OutputsFirst(node));
  std::transform(hidden.begin(), hidden.end(), hidden.begin(), Gelu);
  return Add(a.input,
             Linear(hidden, p[4], p[5], node.attributes.integer("hidden"), OutputsFirst(node)));
}

Numbers Norm(const Node&, const Arguments& a) {
  return LayerNorm(a.input, a.parameters[0], a.parameters[1]);
}

Numbers Head(const Node& node, const Arguments& a) {
  const int64_t width = node.attributes.integer("width");
  double loss = 0.0;
  for (size_t row = 0; row < a.targets.size(); ++row) {
    double sum = 0.0;
    double at_target = 0.0;
    for (int64_t v = 0; v < node.attributes.integer("vocabulary"); ++v) {
      double logit = 0.0;
      for (int64_t c = 0; c < width; ++c) {
        logit += a.input[row * width + c] * a.parameters[0][v * width + c];
      }
      sum += std::exp(logit);
      at_target = v == a.targets[row] ? logit : at_target;
    }
    loss += (std::log(sum) - at_target) / static_cast<double>(a.targets.size());
  }
  return {loss};
}

}  // namespace

Numbers Forward(const Node& node, const Arguments& arguments) {
  using OpFunction = Numbers (*)(const Node&, const Arguments&);
  static const std::map<absl::string_view, OpFunction> kFunctions = {
      {"gpt_embedding", Embedding},
      {"attention_branch", AttentionBranch},
      {"mlp_branch", MlpBranch},
      {"layer_norm", Norm},
      {"gpt_head", Head}};
  return kFunctions.at(node.op->name)(node, arguments);
}

Numbers CentralDifferences(Numbers& variables, const std::function<double()>& value) {
  constexpr double kStep = 1e-5;
  Numbers gradient;
  for (double& variable : variables) {
    const double original = variable;
    variable = original + kStep;
    const double above = value();
    variable = original - kStep;
    const double below = value();
    variable = original;
    gradient.push_back((above - below) / (2 * kStep));
  }
  return gradient;
}

}  // namespace penstock::reference
