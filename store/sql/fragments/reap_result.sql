select p.scope, p.upto_at, p.upto_handle, p.seen, count(g.scope) as done
from reach p
left join gone g on g.scope = p.scope
group by p.scope, p.upto_at, p.upto_handle, p.seen
