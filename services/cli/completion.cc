#include "services/cli/completion.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace penstock {
namespace {

// In single quotes, whatever it holds. Bash and zsh.
std::string Quoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}
std::string FishQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

void ForEach(const CommandText& command, const std::function<void(const CommandText&)>& visit) {
  visit(command);
  for (const CommandText& below : command.commands) ForEach(below, visit);
}

std::vector<std::string> NamesOf(const std::vector<CommandText>& commands) {
  std::vector<std::string> names;
  names.reserve(commands.size());
  for (const CommandText& command : commands) names.push_back(command.name);
  return names;
}

std::vector<std::string> FlagsOf(const CommandText& command) {
  std::vector<std::string> flags;
  for (const OptionText& option : command.options) {
    flags.insert(flags.end(), option.names.begin(), option.names.end());
  }
  return flags;
}

// Returns the words that may stand where no flag is asked for.
std::vector<std::string> WordsOf(const CommandText& command) {
  std::vector<std::string> words = NamesOf(command.commands);
  for (const OptionText& positional : command.positionals) {
    words.insert(words.end(), positional.choices.begin(), positional.choices.end());
  }
  return words;
}

// The functions that look, common to all scripts. `choices` and `flags` are those of the command so far; an empty
// COMPREPLY lets the shell complete files. Bash splits words at "=" and completes what follows the sign: `before` is
// the key of "--set KEY=VALUE" with its sign.
constexpr char kBashHead[] = R"(_penstock_words() {
  COMPREPLY=($(compgen -W "$1" -- "$current"))
  COMPREPLY=("${COMPREPLY[@]#"$before"}")
  [[ ${COMPREPLY[*]} == *= ]] && compopt -o nospace 2>/dev/null
}
_penstock_list() {
  local before=
  [[ $current == *,* ]] && before=${current%,*},
  COMPREPLY=($(compgen -P "$before" -W "$1" -- "${current##*,}"))
}
_penstock() {
  local command= choices= flags= before= sign=0 i
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  if [[ $current == = ]]; then
    current= sign=1
  elif [[ $previous == = ]]; then
    sign=2
  fi
  if ((sign)); then
    previous=${COMP_WORDS[COMP_CWORD-sign]}
    if [[ $previous != -* ]]; then
      before=$previous=
      current=$before$current
      previous=${COMP_WORDS[COMP_CWORD-sign-1]}
      [[ $previous == = ]] && previous=${COMP_WORDS[COMP_CWORD-sign-2]}
    fi
  fi
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$command ${COMP_WORDS[i]}" in
)";
constexpr char kBashTail[] = R"(  if [[ $current == -* ]]; then
    _penstock_words "$flags"
  else
    _penstock_words "$choices"
  fi
}
complete -o bashdefault -o default -F _penstock penstock
)";

// The lines of a `case` over what the words so far are, one for each answer.
std::string Cases(const std::map<std::string, std::vector<std::string>>& patterns_by_answer) {
  std::string text;
  for (const auto& [answer, patterns] : patterns_by_answer) {
    absl::StrAppend(&text, "    ", absl::StrJoin(patterns, " | "), ") ", answer, " ;;\n");
  }
  return text;
}

std::string BashBody(const CommandText& program) {
  std::vector<std::string> commands;
  std::string tables;
  std::map<std::string, std::vector<std::string>> values;
  ForEach(program, [&](const CommandText& command) {
    for (const CommandText& below : command.commands) {
      commands.push_back(Quoted(absl::StrCat(command.path, " ", below.name)));
    }
    absl::StrAppend(&tables, "    ", Quoted(command.path),
                    ")\n      choices=", Quoted(absl::StrJoin(WordsOf(command), " ")),
                    "\n      flags=", Quoted(absl::StrJoin(FlagsOf(command), " ")), "\n      ;;\n");
    for (const OptionText& option : command.options) {
      if (option.value.empty()) continue;
      const std::string choices = Quoted(absl::StrJoin(option.choices, " "));
      const char* how = option.separated_by_commas ? "_penstock_list " : "_penstock_words ";
      const std::string answer =
          option.choices.empty() ? "return" : absl::StrCat(how, choices, "; return");
      for (const std::string& name : option.names) {
        values[answer].push_back(Quoted(absl::StrCat(command.path, " ", name)));
      }
    }
  });
  return absl::StrCat(kBashHead, "    ", absl::StrJoin(commands, " | "),
                      ") command=${command:+$command }${COMP_WORDS[i]} ;;\n    esac\n  done\n",
                      "  case \"$command $previous\" in\n", Cases(values), "  esac\n",
                      "  case $command in\n", tables, "  esac\n", kBashTail);
}

// When fish offers what belongs to the command.
std::string FishCondition(const CommandText& command, const std::vector<std::string>& words) {
  if (command.path.empty()) return "__fish_use_subcommand";
  std::vector<std::string> conditions;
  conditions.reserve(words.size());
  for (const std::string& word : words) {
    conditions.push_back(absl::StrCat("__fish_seen_subcommand_from ", word));
  }
  if (!command.commands.empty()) {
    conditions.push_back(absl::StrCat("not __fish_seen_subcommand_from ",
                                      absl::StrJoin(NamesOf(command.commands), " ")));
  }
  return absl::StrJoin(conditions, "; and ");
}

std::string FishOption(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    absl::StrAppend(&text, is_long ? " -l " : " -s ", name.substr(is_long ? 2 : 1));
  }
  if (!option.choices.empty()) {
    absl::StrAppend(&text, " -x -a ", FishQuoted(absl::StrJoin(option.choices, " ")));
  } else if (!option.value.empty()) {
    absl::StrAppend(&text, " -r");
  }
  return absl::StrCat(text, " -d ", FishQuoted(option.description));
}

void AppendFish(const CommandText& command, std::vector<std::string> words, std::string& text) {
  if (!command.path.empty()) words.push_back(command.name);
  const std::string begin =
      absl::StrCat("complete -c penstock -n ", FishQuoted(FishCondition(command, words)));
  for (const CommandText& below : command.commands) {
    absl::StrAppend(&text, begin, " -f -a ", below.name, " -d ", FishQuoted(below.summary), "\n");
  }
  for (const OptionText& positional : command.positionals) {
    if (positional.choices.empty()) continue;
    absl::StrAppend(&text, begin, " -a ", FishQuoted(absl::StrJoin(positional.choices, " ")), "\n");
  }
  for (const OptionText& option : command.options) {
    absl::StrAppend(&text, begin, FishOption(option), "\n");
  }
  for (const CommandText& below : command.commands) AppendFish(below, words, text);
}

}  // namespace

std::string BashCompletion(const CommandText& program) {
  return absl::StrCat("# Completion of penstock in bash, made by `penstock completion bash`.\n",
                      BashBody(program));
}

std::string ZshCompletion(const CommandText& program) {
  return absl::StrCat("# Completion of penstock in zsh, made by `penstock completion zsh`.\n",
                      "autoload -U +X bashcompinit && bashcompinit\n", BashBody(program));
}

std::string FishCompletion(const CommandText& program) {
  std::string text = "# Completion of penstock in fish, made by `penstock completion fish`.\n";
  AppendFish(program, {}, text);
  return text;
}

}  // namespace penstock
