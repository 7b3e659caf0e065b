// penstock certs init | issue | rotate | show: a certificate authority for one cluster, and what it issues.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "services/cli/command_text.h"
#include "services/cli/commands/commands.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"
#include "services/security/authority_directory.h"

namespace penstock {
namespace {

constexpr char kDefaultDirectory[] = "certificates";
constexpr int kDefaultDays = 90;
constexpr int kDaysMax = 3650;

struct CertsOptions {
  std::string directory = kDefaultDirectory;
  std::string trust_domain = "penstock";
  std::string role;
  std::string name;
  std::vector<std::string> hosts;
  int days = kDefaultDays;
  bool new_authority = false;
  bool drop_old_authorities = false;
  bool json = false;
};

absl::Duration Lifetime(const CertsOptions& options) { return absl::Hours(24 * options.days); }

// A server is reached under its role's name (which tools that check host names can be made to expect), on this
// machine, and where the user says.
std::vector<std::string> HostsOf(Role role, const std::vector<std::string>& more) {
  std::vector<std::string> hosts;
  if (role == Role::kCoordinator || role == Role::kWorker) {
    hosts = {RoleName(role), "localhost", "127.0.0.1", "::1"};
  }
  hosts.insert(hosts.end(), more.begin(), more.end());
  return hosts;
}

std::string Date(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d", time, absl::UTCTimeZone());
}

void Print(const std::vector<IssuedCertificate>& issued, bool json, Console& console) {
  if (json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto& [directory, facts] : issued) {
      list.push_back(
          {{"directory", directory},
           {"identity", facts.identity.ToUri()},
           {"hosts", facts.hosts},
           {"serial", facts.serial},
           {"expires", absl::FormatTime(absl::RFC3339_sec, facts.not_after, absl::UTCTimeZone())}});
    }
    return PrintJson(list, console);
  }
  Table table({{"DIRECTORY"}, {"IDENTITY"}, {"EXPIRES"}, {"HOSTS"}});
  for (const auto& [directory, facts] : issued) {
    table.AddRow({directory, facts.identity.ToUri(), Date(facts.not_after),
                  absl::StrJoin(facts.hosts, " ")});
  }
  console.out << table.Render();
}

absl::Status Init(const CertsOptions& options, Console& console) {
  const absl::Time now = absl::Now();
  PENSTOCK_ASSIGN_OR_RETURN(const AuthorityDirectory authority,
                            AuthorityDirectory::Make(options.directory, options.trust_domain, now));
  std::vector<IssuedCertificate> issued;
  for (const Role role : AllRoles()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        issued.emplace_back(),
        authority.Issue(role, /*name=*/"", HostsOf(role, options.hosts), Lifetime(options), now));
  }
  Print(issued, options.json, console);
  const std::string& directory = options.directory;
  console.err << "keep " << directory
              << "/authority to yourself, and give each party its directory:\n"
              << "  penstock-coordinator --certificates " << directory << "/coordinator\n"
              << "  penstock-worker --certificates " << directory << "/worker\n"
              << "  export PENSTOCK_CERTIFICATES=" << directory << "/client\n";
  return absl::OkStatus();
}

absl::Status Issue(const CertsOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const Role role, ParseRole(options.role));
  PENSTOCK_ASSIGN_OR_RETURN(const AuthorityDirectory authority,
                            AuthorityDirectory::Open(options.directory));
  PENSTOCK_ASSIGN_OR_RETURN(const IssuedCertificate issued,
                            authority.Issue(role, options.name, HostsOf(role, options.hosts),
                                            Lifetime(options), absl::Now()));
  Print({issued}, options.json, console);
  return absl::OkStatus();
}

absl::Status Rotate(const CertsOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(AuthorityDirectory authority,
                            AuthorityDirectory::Open(options.directory));
  if (options.new_authority) {
    PENSTOCK_RETURN_IF_ERROR(authority.AddAuthority(absl::Now()));
    console.err
        << "all parties trust the new authority beside the old; when each has its directory, say\n"
        << "  penstock certs rotate --directory " << options.directory << "\n"
        << "  penstock certs rotate --directory " << options.directory
        << " --drop-old-authorities\n";
  } else if (options.drop_old_authorities) {
    PENSTOCK_RETURN_IF_ERROR(authority.DropOldAuthorities());
  } else {
    PENSTOCK_RETURN_IF_ERROR(authority.Rotate(Lifetime(options), absl::Now()).status());
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> issued, authority.List());
  Print(issued, options.json, console);
  return absl::OkStatus();
}

absl::Status Show(const CertsOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(const AuthorityDirectory authority,
                            AuthorityDirectory::Open(options.directory));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> issued, authority.List());
  Print(issued, options.json, console);
  if (!options.json) {
    console.err << "authorities: " << authority.authorities() << ", the newest until "
                << Date(authority.authority_not_after()) << "\n";
  }
  return absl::OkStatus();
}

void AddCommonOptions(CLI::App& app, CertsOptions& options) {
  app.add_option("-o,--directory", options.directory, "The authority's directory")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_flag("--json", options.json, "Print JSON");
}

void AddIssueOptions(CLI::App& app, CertsOptions& options) {
  app.add_option(
         "--host", options.hosts,
         "A host name or address of the party, for browsers and scrapers that check it; may be "
         "repeated")
      ->type_name("HOST");
}

void AddDays(CLI::App& app, CertsOptions& options) {
  app.add_option("--days", options.days,
                 "Days that the certificates are valid; the authority is for ten years")
      ->type_name("N")
      ->check(CLI::Range(1, kDaysMax))
      ->capture_default_str();
}

}  // namespace

CommandRunner DeclareCerts(CLI::App& app) {
  const auto options = std::make_shared<CertsOptions>();

  CLI::App* init = app.add_subcommand("init", "Make an authority, and a certificate for each role");
  AddCommonOptions(*init, *options);
  init->add_option("--trust-domain", options->trust_domain,
                   "Name of the cluster; parties of other clusters are refused")
      ->type_name("NAME")
      ->capture_default_str();
  AddIssueOptions(*init, *options);
  AddDays(*init, *options);

  CLI::App* issue = app.add_subcommand("issue", "Make a certificate for a role or a single party");
  issue->add_option("ROLE", options->role, "client, worker, coordinator or monitor")
      ->required()
      ->type_name("")
      ->check(KnownValues({"client", "worker", "coordinator", "monitor"}));
  issue
      ->add_option("--name", options->name,
                   "The party's name; a worker's certificate then serves that worker alone")
      ->type_name("NAME");
  AddCommonOptions(*issue, *options);
  AddIssueOptions(*issue, *options);
  AddDays(*issue, *options);

  CLI::App* rotate =
      app.add_subcommand("rotate", "Replace all certificates; nobody has to be restarted");
  AddCommonOptions(*rotate, *options);
  AddDays(*rotate, *options);
  CLI::Option* fresh = rotate->add_flag("--new-authority", options->new_authority,
                                        "Only make a new authority, trusted beside the old one");
  rotate
      ->add_flag("--drop-old-authorities", options->drop_old_authorities,
                 "Only end the trust in authorities before the newest")
      ->excludes(fresh);

  CLI::App* show = app.add_subcommand("show", "List the certificates and when they expire");
  AddCommonOptions(*show, *options);

  app.require_subcommand(1);
  return [options, init, issue, rotate](Console& console) {
    if (init->parsed()) return Init(*options, console);
    if (issue->parsed()) return Issue(*options, console);
    return rotate->parsed() ? Rotate(*options, console) : Show(*options, console);
  };
}

}  // namespace penstock
