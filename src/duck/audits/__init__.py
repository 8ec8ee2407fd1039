"""Audits of unlearned models.

`auditing` audits any models; `duck.commands.audit` audits a stored run. Both run one of the tiers
`quick`, `oracle` and, with a pool, `full`. A tier has these steps:

- measure all models (`measurements`, `memory`, `probes`, `pool_measures`, and `attacks`);
- compare the unlearned model with retrained ones (`judge`);
- check the comparison with models whose verdict is known (`controls`);
- return an `Audit` (`verdict`).
"""
