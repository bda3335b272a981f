-- Health by the conditions of the status, which keep the contract of kstatus: what Flux waits for is what is Healthy here.
-- Degraded only when waiting does not help: Argo CD ends a sync on it.
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "the operator has not seen this generation yet" }
end
local on = {}
local messages = {}
for _, condition in ipairs(status.conditions or {}) do
  on[condition.type] = condition.status == "True"
  messages[condition.type] = condition.message
end
if on.Stalled then
  return { status = "Degraded", message = messages.Stalled }
end
if on.Degraded then
  return { status = "Degraded", message = messages.Degraded }
end
if on.Reconciling then
  return { status = "Progressing", message = messages.Reconciling }
end
if on.Ready then
  return { status = "Healthy", message = messages.Ready }
end
return { status = "Progressing", message = messages.Ready or "not Ready yet" }
