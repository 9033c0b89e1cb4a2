module github.com/taskdiag/taskdiag/clients/go

go 1.19
