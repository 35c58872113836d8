-- How Argo CD shows an ElasticJob. docs/gitops.md says where this belongs.
local status = obj.status or {}
local health = { status = "Progressing", message = status.message or "" }
if status.observedGeneration ~= obj.metadata.generation then
  return health
end
if status.phase == "Failed" then
  health.status = "Degraded"
elseif status.phase == "Suspended" or status.phase == "Stopped" then
  health.status = "Suspended"
else
  for _, condition in ipairs(status.conditions or {}) do
    if condition.type == "Ready" and condition.status == "True" then
      health.status = "Healthy"
    elseif condition.type:match("Stalled$") and condition.status == "True" then
      return { status = "Degraded", message = condition.message }
    end
  end
end
return health
