package main

import (
	"encoding/json"
	"fmt"
)

const noOffset = "-1"

// Txn is how a transaction ended: its offsets were committed between two events, or never.
type Txn struct {
	begun, done int // of the commit; done is 0 if it has no answer
	aborted     bool
}

// transactions returns the ends of all transactions by their names.
func transactions(calls []*Call) map[string]*Txn {
	found := map[string]*Txn{}
	committing := map[string]bool{}
	for _, call := range calls {
		if call.Op != "commit" && call.Op != "abort" {
			continue
		}
		txn := found[call.Txn]
		if txn == nil {
			txn = &Txn{}
			found[call.Txn] = txn
		}
		switch {
		case call.Op == "abort":
			txn.aborted = txn.aborted || call.ok()
		case call.failed():
		default:
			if !committing[call.Txn] {
				txn.begun = call.N
			}
			committing[call.Txn] = true
			if call.ok() && txn.done == 0 {
				txn.done = call.Outcome.N
			}
		}
	}
	for name, txn := range found {
		txn.aborted = txn.done == 0 && (txn.aborted || !committing[name])
	}
	return found
}

// addOffsets: the committed offset of a group in a partition.
func (r *Registers) addOffsets(call *Call, txns map[string]*Txn) {
	if call.failed() {
		return
	}
	switch call.Op {
	case "offset_commit":
		r.writeOffsets(call, call.Offsets, func(key string, in input) {
			r.add(key, noOffset, call, in)
		})
	case "offset_delete":
		var partitions [][]any
		_ = json.Unmarshal(call.Partitions, &partitions)
		for _, partition := range partitions {
			partition = append(partition, noOffset)
			r.writeOffsets(call, [][]any{partition}, func(key string, in input) {
				r.add(key, noOffset, call, in)
			})
		}
	case "add_offsets":
		r.addTransactional(call, txns[call.Txn])
	case "offset_fetch":
		if !call.ok() {
			return
		}
		r.writeOffsets(call, call.Outcome.Offsets, func(key string, in input) {
			in.action = read
			r.add(key, noOffset, call, in)
		})
	}
}

func (r *Registers) addTransactional(call *Call, txn *Txn) {
	if txn == nil || txn.aborted {
		return
	}
	done := r.end
	if call.ok() && txn.done != 0 {
		done = int64(txn.done)
	}
	r.writeOffsets(call, call.Offsets, func(key string, in input) {
		r.addBetween(key, noOffset, int64(txn.begun), done, in)
	})
}

// writeOffsets calls `add` for each [topic, partition, offset] but those that were refused.
func (r *Registers) writeOffsets(call *Call, offsets [][]any, add func(string, input)) {
	refused := map[string]bool{}
	for _, partition := range call.Outcome.Refused {
		refused[fmt.Sprint(partition...)] = true
	}
	for _, part := range offsets {
		topic := fmt.Sprint(part[0])
		if r.deleted[call.Org+"/"+topic] || refused[fmt.Sprint(part[:2]...)] {
			continue
		}
		key := fmt.Sprintf("offset %s/%s %s-%v", call.Org, call.Group, topic, part[1])
		add(key, input{action: write, value: fmt.Sprint(part[2])})
	}
}
