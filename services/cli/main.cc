// penstock: the command line. The table below is all there is; each command has its file in commands/.
#include "services/cli/command.h"
#include "services/cli/commands/commands.h"
#include "services/rpc/grpc_log.h"

namespace penstock {
namespace {

constexpr char kHere[] = "Train on this machine";
constexpr char kCluster[] = "Use a cluster";
constexpr char kResults[] = "Use a result";
constexpr char kSchedules[] = "Study methods and schedules";

constexpr Command kCommands[] = {
    {"train", kHere, "Train a job on a cluster of local worker processes", DeclareTrain},
    {"submit", kCluster, "Hand a job to a coordinator and watch it", DeclareSubmit},
    {"list", kCluster, "List the jobs, newest first", DeclareList},
    {"status", kCluster, "Show a job: state, plan, result", DeclareStatus},
    {"logs", kCluster, "Show what happened in a job", DeclareLogs},
    {"cancel", kCluster, "Drain a job at its next step boundary and end it", DeclareCancel},
    {"workers", kCluster, "List the workers", DeclareWorkers},
    {"timeline", kCluster, "Get or draw the measured timeline of a job", DeclareTimeline},
    {"generate", kResults, "Sample text from a checkpoint", DeclareGenerate},
    {"export", kResults, "Write a checkpoint as Hugging Face GPT-2 files", DeclareExport},
    {"compare", kResults, "Put results of `train --json` side by side", DeclareCompare},
    {"methods", kSchedules, "List the pipeline methods", DeclareMethods},
    {"simulate", kSchedules, "Predict bubble, staleness, memory and timeline", DeclareSimulate},
    {"schedule", kSchedules, "Print, draw or verify a schedule", DeclareSchedule},
};

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  penstock::SetGrpcLogSink([](const char*) {});  // we report failed calls in our own words
  penstock::Console console = penstock::StandardConsole();
  return penstock::RunCommandLine(penstock::kCommands, argc, argv, console);
}
