// Data shards, plans and events.
const SHARDS = [["done", "c-good"], ["leased", "c-main"], ["waiting", "c-grid"], ["failed", "c-bad"]];

function shards(datasets) {
  by("shards").hidden = !datasets.length;
  const target = by("datasets");
  while (target.children.length > datasets.length) target.lastChild.remove();
  datasets.forEach((each, position) => {
    const row = target.children[position] || put(target, "div", undefined, "dataset");
    if (!row.children.length) {
      const title = put(row, "div", undefined, "chart-title");
      put(title, "span");
      put(title, "b");
      put(row, "div", undefined, "parts");
      put(row, "ul", undefined, "key");
    }
    const [title, bar, list] = row.children;
    write(title.firstChild, each.name);
    write(title.lastChild, `${grouped(each.done)} / ${grouped(each.total)}${each.growing ? ", growing" : ""}`);
    parts(bar, SHARDS.map(([field, className]) => [each[field], className, `${field}: ${each[field]}`]));
    key(list, [...SHARDS.filter(([field]) => each[field]).map(([field, className]) => [grouped(each[field]), className, field]),
      ...(each.returned ? [[grouped(each.returned), "", "leases returned"]] : [])]);
  });
}

function plansAndEvents(plans, events) {
  table("plans", ["|Made", "|Plan", "|Phase", "Reason"], plans.toReversed().map(each => ({
    bad: each.phase === "Failed",
    cells: [clock(each.created), short(each.name, present.job), each.phase, [each.source, each.reason, each.message].filter(Boolean).join("; ")] })));
  table("events", ["|Time", "|Event", "Message"], events.toReversed().map(each => ({
    bad: PROBLEMS.has(each.reason), cells: [clock(each.time), each.reason, each.message] })));
}
// A row of a plan shows the plan in the charts.
by("plans").addEventListener("click", event => {
  const row = event.target.closest("tbody tr"), plan = row && present.plans?.toReversed()[row.sectionRowIndex];
  if (plan?.created) pointAt(plan.created);
});
