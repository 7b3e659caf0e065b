// The families of recurrent models: language models of LSTMs, GNMT and S2VT.
//
// Parameters of LSTMs are named and laid out as PyTorch's. Each LSTM is a layer with the dropout around it; so are each
// embedding, GNMT's attention, and the output together with the loss.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

// A language model as of Zaremba et al., arXiv 1409.2329: dropout before, between and behind LSTMs. The numbers here are
// those of the paper's medium model. Ports: `tokens` and `targets`, i32 [context].
struct LstmLmConfig {
  int64_t layers = 2;
  int64_t hidden = 650;
  int64_t embedding = 0;  // 0: hidden
  int64_t context = 35;
  int64_t vocabulary = 256;
  double dropout = 0.5;
  bool tied = false;     // the output uses the table of the embedding
  bool carried = false;  // LSTMs go on from step to step (op lstm)
  friend bool operator==(const LstmLmConfig&, const LstmLmConfig&) = default;
};

// AWD-LSTM: Merity et al., arXiv 1708.02182, with the dropouts of table 1 for the Penn Treebank. All but that of weights
// and rows are locked: one mask for all time steps. Tied, the last LSTM is as wide as the embedding.
struct AwdLmConfig {
  int64_t layers = 3;
  int64_t hidden = 1150;
  int64_t embedding = 400;
  int64_t context = 70;
  int64_t vocabulary = 256;
  double input_dropout = 0.4;    // behind the embedding
  double hidden_dropout = 0.25;  // between LSTMs
  double output_dropout = 0.4;   // behind the last LSTM
  double row_dropout = 0.1;      // of whole rows of the embedding
  double weight_dropout = 0.5;   // of the recurrent matrices
  bool tied = true;
  bool carried = false;  // LSTMs go on from step to step (op lstm)
  friend bool operator==(const AwdLmConfig&, const AwdLmConfig&) = default;
};

// Translation: Wu et al., arXiv 1609.08144, in NVIDIA's variant (DeepLearningExamples, GNMT v2), whose attention reads the
// first decoder layer and is not fed back to it, so that no step waits for the one before it but within an LSTM. The first
// encoder layer reads both ways; from the third on, layers of both sides add their input to their output; every decoder
// layer but the first reads the attention's context, too. All first weights are between -0.1 and 0.1.
//
// Ports: `source` i32 [source_time], `source_lengths` i32 [], `inputs` and `targets` i32 [target_time]. Targets of the
// id 0, of padding, do not count.
struct GnmtConfig {
  int64_t layers = 8;  // half of them are the encoder's
  int64_t hidden = 1024;
  int64_t vocabulary = 32320;  // of both languages
  int64_t source_time = 50;
  int64_t target_time = 50;
  double dropout = 0.2;
  double label_smoothing = 0.1;
  // Encoder and decoder use one table. Both embeddings are then in the first layer, and the decoder's crosses the cuts
  // up to its first LSTM.
  bool shared_embedding = false;
  friend bool operator==(const GnmtConfig&, const GnmtConfig&) = default;
};

// Video to text: Venugopalan et al., arXiv 1505.00487. Two LSTMs, one on the other, read the frames and then write the
// caption; the first gets zeros in place of frames while words are written, the second zeros in place of words before.
//
// Ports: `frames` f32 [frames, features], `inputs` and `targets` i32 [words]. Targets of the id 0, of padding, do not
// count.
struct S2vtConfig {
  int64_t vocabulary = 0;
  int64_t frames = 60;  // the paper has 80 for frames and words together
  int64_t words = 20;
  int64_t features = 4096;  // of a frame
  int64_t hidden = 1000;
  int64_t embedding = 500;  // of frames and of words
  friend bool operator==(const S2vtConfig&, const S2vtConfig&) = default;
};

// Errors: InvalidArgument starting with the field.
absl::StatusOr<ModelGraph> BuildLstmLm(const LstmLmConfig& config);
absl::StatusOr<ModelGraph> BuildAwdLm(const AwdLmConfig& config);
absl::StatusOr<ModelGraph> BuildGnmt(const GnmtConfig& config);
absl::StatusOr<ModelGraph> BuildS2vt(const S2vtConfig& config);

}  // namespace penstock
