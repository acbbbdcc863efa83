// The container that holds a pod's namespaces: it waits, and reaps what the pod's other containers leave behind.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for {
			if process, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); process <= 0 || err != nil {
				break
			}
		}
	}
}
