package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Values of registers are JSON texts; these two are none.
const (
	none     = "null"
	anyValue = "(any)" // of a write whose value is not known: a topic's id, if there was no answer
)

type action int

const (
	write  action = iota
	read          // finds exactly this value
	exists        // finds any value but none
	create        // writes if there is none; certain ones find none
	remove        // writes none if there is a value; certain ones find one
)

type input struct {
	action  action
	value   string
	certain bool // it was answered
}

// register is the model of one key: a value that is read and replaced.
func register(initial string) porcupine.Model {
	return porcupine.Model{
		Init: func() interface{} { return initial },
		Step: func(state, in, _ interface{}) (bool, interface{}) {
			legal, next := step(state.(string), in.(input))
			return legal, next
		},
		Equal: func(one, other interface{}) bool { return one == other },
		DescribeOperation: func(in, _ interface{}) string {
			return fmt.Sprintf("%v", in)
		},
	}
}

func step(state string, in input) (bool, string) {
	switch in.action {
	case write:
		return true, in.value
	case read:
		if state == anyValue && in.value != none {
			return true, in.value // now it is known
		}
		return state == in.value, state
	case exists:
		return state != none, state
	case create:
		if state == none {
			return true, in.value
		}
		return !in.certain, state
	default:
		if state != none {
			return true, none
		}
		return !in.certain, state
	}
}

// Registers are the operations of all keys.
type Registers struct {
	initial    map[string]string
	operations map[string][]porcupine.Operation
	deleted    map[string]bool // topics whose names may have had several lives
	end        int64           // later than all events
}

// newRegisters sorts the calls of a history by key.
func newRegisters(calls []*Call, events int) *Registers {
	r := &Registers{
		initial:    map[string]string{},
		operations: map[string][]porcupine.Operation{},
		deleted:    map[string]bool{},
		end:        int64(events),
	}
	for _, call := range calls {
		if call.Op == "delete_topic" {
			r.deleted[call.Org+"/"+call.Topic] = true
		}
	}
	r.addTopics(calls)
	txns := transactions(calls)
	for _, call := range calls {
		r.addTopic(call)
		r.addPartitions(call)
		r.addConfig(call)
		r.addOffsets(call, txns)
	}
	return r
}

// add adds what a call has done or found. Without an answer it may take effect until the end;
// what never takes effect is the same as what does so after everything else.
func (r *Registers) add(key, initial string, call *Call, in input) {
	begun, done := int64(call.N), r.end
	if call.ok() || call.failed() {
		done, in.certain = int64(call.Outcome.N), true
	}
	r.addBetween(key, initial, begun, done, in)
}

func (r *Registers) addBetween(key, initial string, begun, done int64, in input) {
	r.initial[key] = initial
	operation := porcupine.Operation{Input: in, Call: begun, Return: done}
	r.operations[key] = append(r.operations[key], operation)
}

// addTopic: the id of a topic; none where there is no topic.
func (r *Registers) addTopic(call *Call) {
	key := fmt.Sprintf("topic %s/%s", call.Org, call.Topic)
	found := call.Outcome.Exists
	switch {
	case call.failed() && found != nil && *found:
		r.add(key, none, call, input{action: exists})
	case call.failed() && found != nil:
		r.add(key, none, call, input{action: read, value: none})
	case call.failed():
	case call.Op == "create_topic":
		r.add(key, none, call, input{action: create, value: id(call.Outcome.TopicID, anyValue)})
	case call.Op == "delete_topic":
		r.add(key, none, call, input{action: remove})
	case call.Op == "describe_topic" && call.ok():
		r.add(key, none, call, input{action: read, value: id(call.Outcome.TopicID, none)})
	}
}

// addTopics: what listings find of the topics that are ever created or deleted.
func (r *Registers) addTopics(calls []*Call) {
	known := map[[2]string]bool{}
	for _, call := range calls {
		if call.Op == "create_topic" || call.Op == "delete_topic" {
			known[[2]string{call.Org, call.Topic}] = true
		}
	}
	for _, call := range calls {
		if call.Op != "list_topics" || !call.ok() || call.Principal != "" {
			continue
		}
		listed := map[string]bool{}
		for _, topic := range call.Outcome.Topics {
			listed[topic] = true
		}
		for topic := range known {
			if topic[0] != call.Org {
				continue
			}
			in := input{action: read, value: none}
			if listed[topic[1]] {
				in = input{action: exists}
			}
			r.add(fmt.Sprintf("topic %s/%s", topic[0], topic[1]), none, call, in)
		}
	}
}

func id(topicID *string, absent string) string {
	if topicID == nil {
		return absent
	}
	return *topicID
}

// addPartitions: the number of partitions of a topic that is never deleted.
func (r *Registers) addPartitions(call *Call) {
	key := fmt.Sprintf("partitions %s/%s", call.Org, call.Topic)
	if call.failed() || r.deleted[call.Org+"/"+call.Topic] {
		return
	}
	switch {
	case call.Op == "create_topic" || call.Op == "add_partitions":
		r.add(key, none, call, input{action: write, value: number(call.Partitions)})
	case call.Op == "describe_topic" && call.ok():
		r.add(key, none, call, input{action: read, value: number(call.Outcome.Partitions)})
	}
}

// addConfig: the value of a config; none for the default.
func (r *Registers) addConfig(call *Call) {
	if call.failed() {
		return
	}
	resource := call.Resource
	if call.Op == "create_topic" {
		resource = "topic:" + call.Topic
	}
	if r.deleted[call.Org+"/"+strings.TrimPrefix(resource, "topic:")] {
		return
	}
	key := func(name string) string {
		return fmt.Sprintf("config %s/%s %s", call.Org, resource, name)
	}
	switch {
	case call.Op == "create_topic":
		for name, value := range call.Configs {
			text, _ := json.Marshal(value)
			r.add(key(name), none, call, input{action: write, value: string(text)})
		}
	case call.Op == "alter_config":
		r.add(key(call.Name), none, call, input{action: write, value: number(call.Value)})
	case call.Op == "describe_config" && call.ok():
		r.add(key(call.Name), none, call, input{action: read, value: number(call.Outcome.Value)})
	}
}
