// Options of clusters, and of `plan --ranks`, that are fine alone and wrong together.
#include "commands/cli/given_options.h"
#include "commands/cli/options_check.h"

namespace train_gpt {
namespace {

void check_cluster(const Options& options, const Given& given) {
  const std::string links =
      first_given(given, {"link-inside", "link-between", "latency-inside", "latency-between", "ranks-per-host"});
  const std::string hops = first_given(given, {"cost-comm", "cost-bandwidth"});
  if (!links.empty() && !hops.empty()) {
    refuse(links + " and " + hops + " contradict each other: both say what a hop takes; leave out one");
  }
  const std::string between = first_given(given, {"link-between", "latency-between"});
  if (!between.empty() && !given.contains("ranks-per-host")) {
    refuse(between + " is for links between hosts: give --ranks-per-host, without which there is one host");
  }
  if (!links.empty() && given.contains("cost-reduction")) {
    refuse(links + " and --cost-reduction contradict each other: both say what reductions take; leave out one");
  }
  if (options.command == Command::plan && !links.empty() && options.layouts.ranks == 0) {
    refuse(links + " has no meaning for plan without --ranks N, which searches the layouts of a cluster");
  }
  if (options.command == Command::train && !links.empty() && options.device.device != DeviceKind::timed) {
    refuse(links + " has no meaning where time is real; it needs --device timed, simulate or plan --ranks");
  }
  const int zero = options.batch.zero;
  const bool timed = options.command == Command::train && options.device.device == DeviceKind::timed;
  if (zero > 0 && links.empty() && (timed || options.command == Command::simulate)) {
    refuse("--zero " + std::to_string(zero) + (timed ? " with --device timed" : "") +
           " takes the time that its bytes take on links: give --link-inside (and --ranks-per-host, --link-between)");
  }
  if (options.command == Command::simulate && options.batch.data_parallel > 1 && links.empty() &&
      options.costs.reduction == 0) {
    refuse("--data-parallel " + std::to_string(options.batch.data_parallel) +
           " changes nothing that is simulated without the time of reductions: give --link-inside (and "
           "--ranks-per-host, --link-between), or --cost-reduction");
  }
}

void check_layouts(const Options& options, const Given& given) {
  if (options.command != Command::plan) return;
  if (options.layouts.ranks == 0) {
    if (given.contains("flops-per-second")) refuse("--flops-per-second has no meaning for plan without --ranks N");
    return;
  }
  const std::string asked = "--ranks " + std::to_string(options.layouts.ranks);
  const std::string single =
      first_given(given, {"schedule-file", "partition", "group-size", "warmup-factor", "accumulation-groups",
                          "search-seconds", "optimizer-step", "delay-correction", "cost-forward", "cost-input",
                          "cost-weight", "cost-comm", "cost-bandwidth", "cost-send", "cost-fused"});
  if (!single.empty()) refuse(single + " is for one layout, and " + asked + " searches them; leave out one");
  if (given.contains("micro-batches")) {
    refuse("--micro-batches and " + asked +
           " contradict each other: layouts with the same rows per step are compared, " +
           "each with an m of its own; give --global-batch-size ROWS");
  }
  if (!options.pipeline.memory_limits.empty()) {
    refuse("--memory-limit LIST is for the ranks of one layout, and " + asked + " searches them; give one limit");
  }
  if (options.pipeline.recompute.kind == RecomputeOption::Kind::list) {
    refuse("--recompute LIST is for one layout, and " + asked + " searches them; give auto or none");
  }
  const bool profiled = !options.pipeline.profile.empty();
  if (profiled && given.contains("flops-per-second")) {
    refuse("--flops-per-second and --profile contradict each other: both say what units take; leave out one");
  }
  if (!profiled && options.layouts.flops_per_second == 0) {
    refuse(asked +
           " needs to know how fast a rank computes: give --profile FILE, which `train_gpt profile` measures, " +
           "or --flops-per-second X, what a rank reaches");
  }
  if (!profiled && !given.contains("link-inside")) {
    refuse(asked + " needs to know the links: give --link-inside GB/s (and, for several hosts, --ranks-per-host and " +
           "--link-between), or a --profile that was measured on several ranks");
  }
  const int k = options.costs.cluster.ranks_per_host;
  if (k > 0 && k < options.layouts.ranks && !given.contains("link-between")) {
    refuse("--ranks-per-host " + std::to_string(k) + " makes several hosts of " + asked + ": give --link-between GB/s");
  }
}

}  // namespace

void check_links(const Options& options, const std::set<std::string>& given) {
  check_cluster(options, given);
  check_layouts(options, given);
}

}  // namespace train_gpt
