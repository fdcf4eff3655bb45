package vcsim

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// Control returns a handler to drive the vCenter from another process:
//
//	GET  /calls          counted requests
//	POST /calls/reset    sets the counts to zero
//	GET  /vms            virtual machines with power state and extraConfig (?config=false leaves it out)
//	POST /vms/destroy    ?name=: destroys a VM behind everyone's back
//	POST /vms/poweroff   ?name=: powers it off
//	POST /vms/foreign    ?name=: creates a VM that nobody owns
//	GET  /sessions       sessions of users
//	POST /sessions/end   ends them all
//	POST /delays         ?clone=5s&powerOn=1s&roundTrip=10ms: changes the delays; what is not named becomes 0
//	POST /clones/fail    ?times=1&message=...: fails the next clone tasks with InsufficientResourcesFault
func (s *Server) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /calls", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Calls(), nil) })
	mux.HandleFunc("POST /calls/reset", func(w http.ResponseWriter, _ *http.Request) {
		s.ResetCalls()
		answer(w, "reset", nil)
	})
	mux.HandleFunc("GET /vms", func(w http.ResponseWriter, r *http.Request) {
		vms := s.VMs()
		if r.URL.Query().Get("config") == "false" {
			for i := range vms {
				vms[i].Config = nil
			}
		}
		answer(w, vms, nil)
	})
	mux.HandleFunc("POST /vms/destroy", func(w http.ResponseWriter, r *http.Request) {
		answer(w, "destroyed", s.DestroyVM(r.Context(), r.URL.Query().Get("name")))
	})
	mux.HandleFunc("POST /vms/poweroff", func(w http.ResponseWriter, r *http.Request) {
		answer(w, "powered off", s.PowerOffVM(r.Context(), r.URL.Query().Get("name")))
	})
	mux.HandleFunc("POST /vms/foreign", func(w http.ResponseWriter, r *http.Request) {
		answer(w, "created", s.CreateForeignVM(r.Context(), r.URL.Query().Get("name")))
	})
	mux.HandleFunc("GET /sessions", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.Sessions(), nil) })
	mux.HandleFunc("POST /sessions/end", func(w http.ResponseWriter, _ *http.Request) {
		s.TerminateSessions()
		answer(w, "ended", nil)
	})
	mux.HandleFunc("POST /delays", func(w http.ResponseWriter, r *http.Request) {
		var d Delays
		for name, target := range map[string]*time.Duration{"clone": &d.Clone, "powerOn": &d.PowerOn, "roundTrip": &d.RoundTrip} {
			if v := r.URL.Query().Get(name); v != "" {
				var err error
				if *target, err = time.ParseDuration(v); err != nil {
					answer(w, nil, err)
					return
				}
			}
		}
		s.SetDelays(d)
		answer(w, "set", nil)
	})
	mux.HandleFunc("POST /clones/fail", func(w http.ResponseWriter, r *http.Request) {
		times := 1
		if v := r.URL.Query().Get("times"); v != "" {
			if err := json.Unmarshal([]byte(v), &times); err != nil {
				answer(w, nil, err)
				return
			}
		}
		s.OnClone(FailClones(times, Fault(r.URL.Query().Get("message"))))
		answer(w, "armed", nil)
	})
	return mux
}

// FailClones returns a hook that fails the next n clone tasks.
func FailClones(n int, fault types.BaseMethodFault) CloneHook {
	hook := Times(n, string(CloneStarted), Action{Fault: fault})
	return func(stage CloneStage, _ string) types.BaseMethodFault { return hook(string(stage)).Fault }
}

// Fault returns a fault as vCenter has it when no host can run a VM: its cause carries the message.
func Fault(message string) types.BaseMethodFault {
	f := &types.InsufficientResourcesFault{}
	f.FaultCause = &types.LocalizedMethodFault{Fault: &types.InsufficientMemoryResourcesFault{}, LocalizedMessage: message}
	f.FaultMessage = []types.LocalizableMessage{{Key: "com.vmware.vim.vc.resources", Message: message}}
	return f
}

func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		v = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(v) //nolint:errchkjson // the client sees a broken answer
}
