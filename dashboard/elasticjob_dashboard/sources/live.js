// Draws what has changed, and starts the page.
by("all").hidden = !isOneOfMany;

function show(changed) {
  Object.assign(present, changed);
  const state = present;
  if (!state.progress) return;
  by("ask").hidden = true;
  by("main").hidden = false;
  summary(state);
  if (changed.samples || changed.plans || changed.events) overTime(state.samples, state.plans, state.events);
  if (changed.report) goodput(state.report);
  if (changed.members) members(state.members, state.job, state.namespace);
  if (changed.firstFailure !== undefined) failedFirst(state.firstFailure);
  if (changed.datasets) shards(state.datasets);
  if (changed.autoscaling) scaling(state.autoscaling);
  if (changed.plans || changed.events) plansAndEvents(state.plans, state.events);
}

function news() {
  const asOf = present.asOf, target = by("news");
  target.className = problem ? "late" : asOf ? "" : "live";
  write(target, problem ? "no news" : asOf ? `as of ${moment(asOf)}` : "live");
  by("problem").hidden = !problem;
  write(by("problem"), problem);
}

// Charts have the colors of the theme in which they were drawn.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  past.shape = "";
  belief.plot?.destroy();
  belief.plot = null;
  show(present);
});
follow();
