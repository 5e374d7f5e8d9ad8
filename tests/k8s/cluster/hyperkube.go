// One program for all that a cluster of one node needs: argv[1] names the component.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	components := map[string]func() *cobra.Command{
		"apiserver": apiserver.NewAPIServerCommand,
		"manager":   manager.NewControllerManagerCommand,
		"scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":   func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
		"kubectl":   kubectl.NewDefaultKubectlCommand,
	}
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "apiserver|manager|scheduler|kubelet|kubectl")
		os.Exit(2)
	}
	command := components[os.Args[1]]
	os.Args = os.Args[1:]
	os.Exit(cli.Run(command()))
}
