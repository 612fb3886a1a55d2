// Porcupine decides whether each key of a history's metadata is linearizable: the ids of topics,
// their numbers of partitions, configs, and the committed offsets of groups.
//
// It reads the JSON lines that tests/sim/history.py describes from standard input, and prints a
// JSON line for each key: key, result ("Ok", "Illegal", "Unknown"), and the events of its calls if
// the result is not "Ok".
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeout = 10 * time.Second

type result struct {
	Key    string                `json:"key"`
	Result porcupine.CheckResult `json:"result"`
	Events []int64               `json:"events"`
}

func main() {
	calls, events, err := readHistory(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	registers := newRegisters(calls, events)
	keys := make([]string, 0, len(registers.operations))
	for key := range registers.operations {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	output := json.NewEncoder(os.Stdout)
	for _, key := range keys {
		if err := output.Encode(registers.check(key)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func (r *Registers) check(key string) result {
	operations := r.operations[key]
	found := porcupine.CheckOperationsTimeout(register(r.initial[key]), operations, timeout)
	checked := result{Key: key, Result: found, Events: []int64{}}
	if found != porcupine.Ok {
		for _, operation := range operations {
			checked.Events = append(checked.Events, operation.Call)
		}
	}
	return checked
}
