-- One request, whatever became of it.
select {request_columns} from maintenance.requests q where q.id = %(id)s
