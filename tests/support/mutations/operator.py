"""Mistakes in the operator."""

from __future__ import annotations

from tests.support.mutations import Mutation

MUTATIONS = (
    Mutation(
        "a delete without UID",
        "operator/elasticjob_operator/pod_executor.py",
        "PODS, job.metadata.namespace, name, uid=uid, grace_seconds=grace_seconds",
        "PODS, job.metadata.namespace, name, grace_seconds=grace_seconds",
    ),
    Mutation(
        "a status written without resourceVersion",
        "operator/elasticjob_operator/executor.py",
        'version = {"resourceVersion": target.resource_version, "uid": target.uid}',
        'version = {"uid": target.uid}',
    ),
    Mutation(
        "the index of a pod that is still leaving is used again",
        "operator/elasticjob_operator/core/model/pods.py",
        "any(not each.finished for each in pods)",
        "any(not each.finished and not each.terminating for each in pods)",
    ),
    Mutation(
        "members that have succeeded are started again",
        "operator/elasticjob_operator/core/members/reconcile.py",
        "return parse_indices(replica.succeeded_indices) | ",
        "return ",
    ),
    Mutation(
        "names are used again",
        "operator/elasticjob_operator/core/members/reconcile.py",
        "            incarnations += 1\n",
        "",
    ),
    Mutation(
        "members are let go before they have drained",
        "operator/elasticjob_operator/core/scaling/plan_membership.py",
        "drained = plan.status.execution_time is not None",
        "drained = True",
    ),
    Mutation(
        "a failure is counted each time it is seen",
        "operator/elasticjob_operator/core/members/terminations.py",
        "elif pod is _newest(replica, pods, pod.index) and not counters.include(pod):",
        "elif pod is _newest(replica, pods, pod.index):",
    ),
    Mutation(
        "the line is not in order of creation",
        "operator/elasticjob_operator/core/scaling/waiting_queue.py",
        "return sorted(waiting, key=lambda item: position(observed, item))",
        "return sorted(waiting, key=lambda item: position(observed, item), reverse=True)",
    ),
    Mutation(
        "manual plans are superseded",
        "operator/elasticjob_operator/core/scaling/waiting_queue.py",
        'isinstance(item, ScalePlan) and item.spec.source == "Auto"]',
        "isinstance(item, ScalePlan)]",
    ),
    Mutation(
        "the plan of a ScaleIn or ScaleOut gets a new name each time",
        "operator/elasticjob_operator/executor.py",
        "kube.create(SCALE_PLANS, job.metadata.namespace, body)",
        "kube.create(SCALE_PLANS, job.metadata.namespace, "
        "{**body, 'metadata': {**body['metadata'], 'name': body['metadata']['name'] + "
        "(f'-{time.time():f}' if body['spec']['source'].startswith('Scale') else '')}})",
    ),
    Mutation(
        "a member goes before its replacement is ready",
        "operator/elasticjob_operator/core/scaling/migration.py",
        "or move.replacement in pods.ready:",
        "or move.replacement in pods.present:",
    ),
    Mutation(
        "an ended job continues",
        "operator/elasticjob_operator/core/decide.py",
        "    _begin,\n    _clean_up,\n",
        "    _begin,\n",
    ),
    Mutation(
        "a suspended plan keeps its size",
        "operator/elasticjob_operator/core/end_pods.py",
        "            membership.counted\n"
        "            if is_return or _is_written_back(observed, plan)\n"
        "            else membership.before\n",
        "            membership.targets\n",
    ),
    Mutation(
        "a rollback forgets whom the plan removed",
        "operator/elasticjob_operator/core/scaling/completion_status.py",
        "restored = IndexSet(islice(members.removed[role], len(unready)))",
        "restored = IndexSet()",
    ),
    Mutation(
        "a deleted object returns by a late event",
        "operator/elasticjob_operator/store.py",
        "        if uid in self._deleted_uids:\n            return False\n",
        "",
    ),
    Mutation(
        "a create without an answer is not looked for",
        "operator/elasticjob_operator/pod_executor.py",
        "            self._jobs_to_relist.add(job.metadata.uid)\n",
        "",
    ),
    Mutation(
        "bounds are not looked at",
        "operator/elasticjob_operator/core/scaling/limits.py",
        "if error := size_error(job, role, size):",
        "if False:",
    ),
    Mutation(
        "a pod of another namespace is taken for the job's own",
        "operator/elasticjob_operator/core/model/identity.py",
        "return JobIdentity(pod.metadata.namespace, owner.name, owner.uid)",
        'return JobIdentity("default", owner.name, owner.uid)',
    ),
    Mutation(
        "an owner of another kind is taken for the job",
        "operator/elasticjob_operator/core/model/identity.py",
        "if owner.controller and is_of_kind(owner, ELASTIC_JOB):",
        "if owner.controller:",
    ),
    Mutation(
        "an invalid status is acted on",
        "operator/elasticjob_operator/core/invalid_status.py",
        "    problem = _problem(observed)\n",
        '    problem = ""\n',
    ),
    Mutation(
        "a counter of names below those of the pods is accepted",
        "operator/elasticjob_operator/core/invalid_status.py",
        "if value < least:",
        "if False:",
    ),
    Mutation(
        "who is ended from outside waits as long as who fails",
        "operator/elasticjob_operator/core/members/backoff.py",
        "first = FIRST_DELAY_FROM_OUTSIDE_SECONDS if from_outside else FIRST_DELAY_SECONDS",
        "first = FIRST_DELAY_SECONDS",
    ),
    Mutation(
        "a master outlives its account",
        "operator/elasticjob_operator/core/members/master.py",
        "return parse_time(account_created) - parse_time(created) > _CLOCK_DIFFERENCE_SECONDS",
        "return False",
    ),
    Mutation(
        "a request more for each pod",
        "operator/elasticjob_operator/pod_executor.py",
        "        await _ensure_claims(self.kube, job, action.claims)\n",
        "        await _ensure_claims(self.kube, job, action.claims)\n"
        '        await self._exists(job, action.name, "")\n',
    ),
    Mutation(
        "a job that ends begins a plan",
        "operator/elasticjob_operator/core/active_job.py",
        "    if scaling.first:\n",
        "    if False:\n",
    ),
)
