-- Which ledger this is, as it was drawn when the worker's own tables were made.
select i.id
from maintenance.identity i
