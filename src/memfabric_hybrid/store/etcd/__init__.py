"""The store on an etcd cluster: the same interface, on etcd's leases, transactions and watches."""
