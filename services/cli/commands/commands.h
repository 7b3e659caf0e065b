// The commands, each declared in its own file (services/cli/command.h says how).
#pragma once

#include "services/cli/command.h"

namespace penstock {

CommandRunner DeclareTrain(CLI::App& app);
CommandRunner DeclareSubmit(CLI::App& app);
CommandRunner DeclareList(CLI::App& app);
CommandRunner DeclareStatus(CLI::App& app);
CommandRunner DeclareLogs(CLI::App& app);
CommandRunner DeclareCancel(CLI::App& app);
CommandRunner DeclareWorkers(CLI::App& app);
CommandRunner DeclareHealth(CLI::App& app);
CommandRunner DeclareTimeline(CLI::App& app);
CommandRunner DeclarePlan(CLI::App& app);
CommandRunner DeclareProfile(CLI::App& app);
CommandRunner DeclareSimulate(CLI::App& app);
CommandRunner DeclareSchedule(CLI::App& app);
CommandRunner DeclareMethods(CLI::App& app);
CommandRunner DeclareModel(CLI::App& app);
CommandRunner DeclareCerts(CLI::App& app);
CommandRunner DeclareEvaluate(CLI::App& app);
CommandRunner DeclareExport(CLI::App& app);
CommandRunner DeclareGenerate(CLI::App& app);
CommandRunner DeclareData(CLI::App& app);
CommandRunner DeclareCompletion(CLI::App& app);
CommandRunner DeclareManual(CLI::App& app);

}  // namespace penstock
