// Texts for numbers, times and sizes.
const number = (value, digits = 3) => value ? String(Number(value.toPrecision(digits))) : "-";
const money = value => value < 1 ? number(value) : grouped(value.toFixed(2));
const grouped = value => Number(value).toLocaleString("en").replaceAll(",", "\u202f");
const percent = part => `${Math.round(100 * part)} %`;
const clock = seconds => seconds ? new Date(seconds * 1000).toLocaleTimeString([], { hour12: false }) : "-";
const moment = seconds => seconds ? new Date(seconds * 1000).toLocaleString([], { hour12: false }) : "-";
function size(bytes) {
  if (!bytes) return "-";
  const mebibytes = bytes / 1048576;
  return mebibytes < 1024 ? `${Math.round(mebibytes)} Mi` : `${number(mebibytes / 1024)} Gi`;
}
function span(seconds) {
  if (seconds === null) return "-";
  const all = Math.round(seconds), hours = Math.floor(all / 3600), minutes = Math.floor(all / 60) % 60;
  if (hours >= 48) return `${Math.floor(hours / 24)} d ${hours % 24} h`;
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${all % 60} s` : `${all} s`;
}
// Names of pods and plans begin with the job's, which the reader knows.
const short = (name, job) => name.startsWith(`${job}-`) ? name.slice(job.length + 1) : name;
const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// Numbers that a chart can show; a gap for others, which a job may report, too.
const drawable = value => typeof value === "number" && Math.abs(value) < 1e15 ? value : null;
