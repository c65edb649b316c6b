module cotenant.dev/testbed/nullextender

go 1.22
