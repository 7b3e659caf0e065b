// penstock: the command line. The table below is all there is; each command has its file in commands/.
#include "services/cli/command.h"
#include "services/cli/commands/commands.h"
#include "services/rpc/grpc_log.h"
#include "services/rpc/grpc_process.h"
#include "studies/command/commands.h"

namespace penstock {
namespace {

constexpr char kHere[] = "Train on this machine";
constexpr char kData[] = "Prepare data";
constexpr char kCluster[] = "Use a cluster";
constexpr char kResults[] = "Use a result";
constexpr char kSchedules[] = "Study methods and schedules";
constexpr char kShell[] = "Set up the shell";

constexpr Command kCommands[] = {
    {"train", kHere, "Train a job on a cluster of local worker processes",
     "Examples:\n"
     "  penstock train examples/shakespeare.yaml --data input.txt --workers 4\n"
     "  penstock train job.yaml --method pipedream --steps 100 --json > result.json\n"
     "  penstock train job.yaml --resume latest\n"
     "Ctrl-C drains the job to its next step boundary; a second Ctrl-C stops at once.",
     DeclareTrain},
    {"data", kData,
     "Make records and tokens of files as they come; look into records; put files to a cluster",
     "Examples:\n"
     "  penstock data prepare images downloads/mnist -o mnist\n"
     "  penstock data prepare pairs /usr/share/locale/de/LC_MESSAGES -o english-german\n"
     "  penstock data prepare tokens corpus/*.txt -o tokens\n"
     "  penstock data show mnist/train --check\n"
     "  penstock data put corpus.txt --coordinator node1:7070",
     DeclareData},
    {"submit", kCluster, "Hand a job to a coordinator and watch it",
     "Examples:\n"
     "  penstock submit job.yaml --coordinator node1:7070\n"
     "  PENSTOCK_COORDINATOR=node1:7070 penstock submit job.yaml --no-wait\n"
     "Ctrl-C ends the watching; the job goes on, and the way back to it is printed.",
     DeclareSubmit},
    {"list", kCluster, "List the jobs, newest first", "Example: penstock list --json", DeclareList},
    {"status", kCluster, "Show a job: state, plan, result so far",
     "Example: penstock status gpt-1-kzvpt", DeclareStatus},
    {"logs", kCluster, "Show what happened in a job", "Example: penstock logs gpt-1-kzvpt -f",
     DeclareLogs},
    {"cancel", kCluster, "Drain a job at its next step boundary and end it",
     "Example: penstock cancel gpt-1-kzvpt", DeclareCancel},
    {"workers", kCluster, "List the workers", "Example: penstock workers", DeclareWorkers},
    {"health", kCluster, "Ask whether a coordinator or a worker serves",
     "Example: penstock health 127.0.0.1:7079", DeclareHealth},
    {"timeline", kCluster, "Get or draw the measured timeline of a job's last steps",
     "Examples:\n"
     "  penstock timeline gpt-1-kzvpt -o trace.json     for ui.perfetto.dev\n"
     "  penstock timeline gpt-1-kzvpt --svg steps.svg --text",
     DeclareTimeline},
    {"certs", kCluster, "Make and replace the certificates of a cluster",
     "Examples:\n"
     "  penstock certs init\n"
     "  penstock certs issue worker --name gpu-1 --host gpu-1.example.org\n"
     "  penstock certs rotate",
     DeclareCerts},
    {"evaluate", kResults, "Measure a checkpoint on data: loss, perplexity, accuracy",
     "Examples:\n"
     "  penstock evaluate job.yaml\n"
     "  penstock evaluate checkpoints/ --data mnist/test --json",
     DeclareEvaluate},
    {"generate", kResults, "Sample text from a checkpoint",
     "Example: penstock generate checkpoints/ --prompt 'The ' --tokens 200 --seed 7",
     DeclareGenerate},
    {"export", kResults, "Write a checkpoint as a directory of Hugging Face's transformers",
     "Examples:\n"
     "  penstock export checkpoints/ -o model/\n"
     "  penstock export gpt-1-kzvpt -o model.safetensors",
     DeclareExport},
    {"compare", kResults, "Train with several methods: which reaches a loss first?",
     "Example: penstock compare job.yaml --methods 1f1b,pipedream --until 2.0", DeclareCompare},
    {"methods", kSchedules, "List the pipeline methods", "Example: penstock methods",
     DeclareMethods},
    {"model", kSchedules, "Show the layers of a job's model, and what they cost",
     "Examples:\n"
     "  penstock model show job.yaml\n"
     "  penstock model show job.yaml --svg model.svg",
     DeclareModel},
    {"profile", kSchedules, "Measure what a device takes for every layer of a model",
     "Examples:\n"
     "  penstock profile job.yaml -o profile.yaml\n"
     "  penstock profile job.yaml --samples 1,2,4,8 --device cuda:0 --json",
     DeclareProfile},
    {"plan", kSchedules, "Cut a profiled model into stages",
     "Examples:\n"
     "  penstock plan --profile profile.yaml --workers 8 --gigabits 10\n"
     "  penstock plan --profile vgg16.txt --workers 4x2 --gigabits 96,10 --model pipedream-code",
     DeclarePlan},
    {"simulate", kSchedules, "Predict length, bubble, staleness, memory and timeline",
     "Examples:\n"
     "  penstock simulate --method 1f1b --stages 4 --microbatches 8 --text\n"
     "  penstock simulate --method pipedream --stages 3 --forward 1,2,1 --svg timeline.svg",
     DeclareSimulate},
    {"schedule", kSchedules, "Print, draw or verify a schedule",
     "Examples:\n"
     "  penstock schedule show 1f1b --stages 4 --microbatches 8\n"
     "  penstock schedule verify my-schedule.csv",
     DeclareSchedule},
    {"theory", kSchedules, "Repeat the studies of what a delayed pipeline costs",
     "Examples:\n"
     "  penstock theory delays\n"
     "  penstock theory logistic --data a9a --json > logistic.json\n"
     "  penstock theory language-model --data tinyshakespeare.txt\n"
     "  penstock theory pipedream --data profiles/",
     DeclareTheory},
    {"study", kSchedules, "Repeat a method's own experiment, or forecast the time to a loss",
     "Examples:\n"
     "  penstock study paci --data tinyshakespeare.txt\n"
     "  penstock study paci --data tinyshakespeare.txt --optimizer adamw --steps "
     "1000,2000,8000,24000\n"
     "  penstock study paci --data tinyshakespeare.txt --finished --json\n"
     "  penstock study forecast --curves study-results/paci-runs\n"
     "  penstock study internet --profile profile.yaml --hosts 100",
     DeclareStudy},
    {"completion", kShell, "Print a script that completes commands, flags and values",
     "Examples:\n"
     "  source <(penstock completion bash)        in ~/.bashrc; zsh likewise, after compinit\n"
     "  penstock completion fish | source         in ~/.config/fish/config.fish",
     DeclareCompletion},
    {"manual", kShell, "Print the manual page", "Example: penstock manual | man -l -",
     DeclareManual},
};

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::PrepareProcessForGrpc();
  penstock::WriteGrpcLog("penstock", /*errors=*/false);  // we report failed calls in our own words
  penstock::Console console = penstock::StandardConsole();
  return penstock::RunCommandLine(penstock::kCommands, argc, argv, console);
}
