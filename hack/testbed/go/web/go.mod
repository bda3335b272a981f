module testbed.local/web

go 1.26.0
